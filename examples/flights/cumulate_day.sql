-- Flights of the day so far at each airport, every hour.

CREATE TABLE flights (
  flight_time TIMESTAMP(3),
  carrier STRING,
  flight INT,
  tailnum STRING,
  origin STRING,
  dest STRING,
  dep_delay INT,
  arr_delay INT,
  air_time INT,
  distance INT,
  WATERMARK FOR flight_time AS flight_time - INTERVAL '1' HOUR
) WITH (
  'connector' = 'filesystem',
  'path' = 'data',
  'format' = 'json'
);

SELECT
  window_start,
  window_end,
  origin,
  COUNT(*) AS scheduled,
  COUNT(dep_delay) AS departures,
  COUNT(*) FILTER (WHERE dep_delay > 15) AS late,
  MAX(dep_delay) AS worst_delay
FROM CUMULATE(TABLE flights, DESCRIPTOR(flight_time), INTERVAL '1' HOUR, INTERVAL '1' DAY)
GROUP BY window_start, window_end, origin;
