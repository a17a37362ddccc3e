SELECT customer, SUM(amount) AS total, MAX(amount) AS largest
FROM Orders
GROUP BY customer;
