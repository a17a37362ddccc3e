-- Total paid and average price per card and hour, with Python functions.

CREATE TABLE orders (
  ordered_at TIMESTAMP(3),
  card STRING,
  price DOUBLE,
  quantity INT,
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'filesystem',
  'path' = 'data',
  'format' = 'json'
);

CREATE TEMPORARY FUNCTION masked AS 'shop.masked' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION discounted AS 'shop.discounted' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION weighted_average AS 'shop.WeightedAverage' LANGUAGE PYTHON;

SELECT window_start, masked(card) AS card, SUM(discounted(price, quantity)) AS paid, weighted_average(price, quantity) AS average_price
  FROM TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '1' HOUR)
  GROUP BY window_start, window_end, masked(card);
