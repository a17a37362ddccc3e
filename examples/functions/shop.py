"""Python functions used by orders.sql."""

from everfold.udf import AggregateFunction, Row, udf


@udf(input_types=["STRING"], result_type="STRING")
def masked(card):
    return None if card is None else "*" * (len(card) - 4) + card[-4:]


@udf(input_types=["DOUBLE", "INT"], result_type="DOUBLE", func_type="polars")
def discounted(price, quantity):
    return price * quantity * (1 - 0.1 * (quantity >= 3))


class WeightedAverage(AggregateFunction):
    def create_accumulator(self):
        return Row(total=0.0, weight=0)

    def accumulate(self, accumulator, value, weight):
        if value is not None and weight is not None:
            accumulator.total += value * weight
            accumulator.weight += weight

    def retract(self, accumulator, value, weight):
        if value is not None and weight is not None:
            accumulator.total -= value * weight
            accumulator.weight -= weight

    def merge(self, accumulator, accumulators):
        for other in accumulators:
            accumulator.total += other.total
            accumulator.weight += other.weight

    def get_value(self, accumulator):
        return accumulator.total / accumulator.weight if accumulator.weight else None

    def get_result_type(self):
        return "DOUBLE"

    def get_accumulator_type(self):
        return "ROW<total DOUBLE, weight BIGINT>"
