-- Sessions of each plane: departures from New York with gaps of at most six hours. From Kafka to Kafka.

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

-- Cancelled flights have no delay, and for some the plane is unknown.
CREATE VIEW departed AS
SELECT * FROM flights WHERE tailnum IS NOT NULL AND dep_delay IS NOT NULL;

CREATE TABLE plane_sessions (
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  tailnum STRING,
  departures BIGINT,
  total_delay INT,
  miles INT
) WITH (
  'connector' = 'kafka',
  'topic' = 'plane_sessions',
  'properties.bootstrap.servers' = '${env:BROKER}',
  'format' = 'json'
);

INSERT INTO plane_sessions
SELECT
  window_start,
  window_end,
  tailnum,
  COUNT(*) AS departures,
  SUM(dep_delay) AS total_delay,
  SUM(distance) AS miles
FROM SESSION(TABLE departed PARTITION BY tailnum, DESCRIPTOR(flight_time), INTERVAL '6' HOURS)
GROUP BY window_start, window_end, tailnum;
