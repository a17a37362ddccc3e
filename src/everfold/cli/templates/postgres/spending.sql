-- What each customer has spent: reads the Kafka topic `orders`, and keeps the total of each
-- customer in the PostgreSQL table `spending`.
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
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://localhost:5432/shop',
  'table-name' = 'spending',
  'username' = 'everfold',
  'password' = '${env:PG_PASSWORD}'
);

INSERT INTO spending
SELECT customer, SUM(amount) AS total
FROM orders
GROUP BY customer;
