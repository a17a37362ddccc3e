-- Departures, mean delay and worst delay of each carrier per day. From Kafka to Kafka.

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

CREATE TABLE daily_by_carrier (
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  carrier STRING,
  departures BIGINT,
  cancelled BIGINT,
  mean_delay INT,
  worst_delay INT
) WITH (
  'connector' = 'kafka',
  'topic' = 'daily_by_carrier',
  'properties.bootstrap.servers' = '${env:BROKER}',
  'format' = 'json'
);

INSERT INTO daily_by_carrier
SELECT
  window_start,
  window_end,
  carrier,
  COUNT(dep_delay) AS departures,
  COUNT(*) - COUNT(dep_delay) AS cancelled,
  AVG(dep_delay) AS mean_delay,
  MAX(dep_delay) AS worst_delay
FROM TUMBLE(TABLE flights, DESCRIPTOR(flight_time), INTERVAL '1' DAY)
GROUP BY window_start, window_end, carrier;
