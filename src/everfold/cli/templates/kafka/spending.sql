-- What each customer has spent: reads the topic `orders`, and keeps the newest total of each
-- customer in the compacted topic `spending`.
CREATE TABLE orders (
  customer STRING,
  item STRING,
  amount INT
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE spending (
  customer STRING,
  total INT,
  PRIMARY KEY (customer) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'spending',
  'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'raw',
  'value.format' = 'json'
);

INSERT INTO spending
SELECT customer, SUM(amount) AS total
FROM orders
GROUP BY customer;
