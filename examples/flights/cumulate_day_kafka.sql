-- Flights of the day so far at each airport, every hour. From Kafka to Kafka.

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
  'connector' = 'kafka',
  'topic' = 'flights',
  'properties.bootstrap.servers' = '${env:BROKER}',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'format' = 'json'
);

CREATE TABLE cumulate_day (
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  origin STRING,
  scheduled BIGINT,
  departures BIGINT,
  late BIGINT,
  worst_delay INT
) WITH (
  'connector' = 'kafka',
  'topic' = 'cumulate_day',
  'properties.bootstrap.servers' = '${env:BROKER}',
  'format' = 'json'
);

INSERT INTO cumulate_day
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
