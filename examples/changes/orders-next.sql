SELECT customer, SUM(amount) AS total, COUNT(*) AS orders
FROM Orders
GROUP BY customer;
