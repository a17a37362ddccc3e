-- Arrivals, delays and miles of each carrier over the last seven days, every day. From Kafka to Kafka.

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

CREATE TABLE weekly_hop (
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  carrier STRING,
  arrivals BIGINT,
  mean_delay INT,
  worst_delay INT,
  miles INT
) WITH (
  'connector' = 'kafka',
  'topic' = 'weekly_hop',
  'properties.bootstrap.servers' = '${env:BROKER}',
  'format' = 'json'
);

INSERT INTO weekly_hop
SELECT
  window_start,
  window_end,
  carrier,
  COUNT(arr_delay) AS arrivals,
  AVG(arr_delay) AS mean_delay,
  MAX(arr_delay) AS worst_delay,
  SUM(distance) AS miles
FROM HOP(TABLE flights, DESCRIPTOR(flight_time), INTERVAL '1' DAY, INTERVAL '7' DAYS)
GROUP BY window_start, window_end, carrier;
