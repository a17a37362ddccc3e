"""placeholder until the branch `stores` is merged"""

from everfold.storage.store import Store


def connect(spark) -> Store:
    raise NotImplementedError


def connect_without_spark(conf) -> Store:
    raise NotImplementedError
