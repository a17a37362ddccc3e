-- Lenses SQL over files: points of gaming sessions by country, of all sessions and of each player's last one.
CREATE TABLE `gaming-sessions` (`_key` STRING, points INT, country STRING)
WITH ('connector' = 'filesystem', 'path' = 'sessions', 'format' = 'json');

SET 'everfold.dialect' = 'lenses';

SELECT STREAM SUM(points) AS total_points, AVG(points) AS average_points, MAXK(points, 1) AS max_points
FROM gaming-sessions
GROUP BY country;

SELECT TABLE SUM(points) AS total_points, AVG(points) AS average_points
FROM gaming-sessions
GROUP BY country;
