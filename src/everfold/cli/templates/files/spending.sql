-- What each customer has spent: reads the files in orders/ and prints each change of the result.
CREATE TABLE orders (
  customer STRING,
  item STRING,
  amount INT
) WITH (
  'connector' = 'filesystem',
  'path' = 'orders',
  'format' = 'json'
);

CREATE TABLE spending (
  customer STRING,
  total INT
) WITH ('connector' = 'print');

INSERT INTO spending
SELECT customer, SUM(amount) AS total
FROM orders
GROUP BY customer;
