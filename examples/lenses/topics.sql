-- Lenses SQL over Kafka topics: everfold run --dialect lenses examples/lenses/topics.sql --var BROKERS=localhost:9092
SET defaults.topic.properties.bootstrap.servers = '${BROKERS}';
SET defaults.topic.autocreate = true;
SET topic.hourly-sessions.partitions = 6;

CREATE TABLE gaming-sessions(_key STRING, points INT, country STRING) FORMAT (STRING, JSON);

INSERT INTO points-by-country
SELECT TABLE SUM(points) AS total_points, AVG(points) AS average_points
FROM gaming-sessions
GROUP BY country;

INSERT INTO hourly-sessions
SELECT STREAM COUNT(*) AS sessions, TOPK(country, 3) AS countries
FROM gaming-sessions
WINDOW BY TUMBLE 1h GRACE BY 10m
GROUP BY gaming-sessions._key AS player;
