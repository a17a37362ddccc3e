"""Error codes: connectors and formats."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "unknown-connector",
        Family.SQL,
        "No connector has this name.",
        "The connectors are listed in docs/connectors.md, under the names that they have in Flink.",
        "correct the option `connector`. The message suggests a close name.",
    ),
    ErrorCode(
        "unknown-format",
        Family.SQL,
        "The connector has no format of this name.",
        "The formats that a connector can read and write are listed in docs/connectors.md.",
        "use one of the formats that the message lists.",
    ),
    ErrorCode(
        "unknown-metadata",
        Family.SQL,
        "The connector has no metadata of this name.",
        "A `METADATA` column refers to a fixed set of keys per connector and format. The message lists them.",
        "correct the key in `METADATA FROM 'key'`.",
    ),
    ErrorCode(
        "read-only-metadata",
        Family.UNSUPPORTED,
        "A metadata column that can only be read is in a table that is written.",
        "For example, the path of a file and the offset of a record are assigned by the external system.",
        "declare the column as `METADATA VIRTUAL`, which excludes it from writing.",
    ),
    ErrorCode(
        "not-a-source",
        Family.UNSUPPORTED,
        "The connector only writes.",
        "Connectors such as `print` and `blackhole` have no rows to select.",
        "select from another table.",
    ),
    ErrorCode(
        "not-a-sink",
        Family.UNSUPPORTED,
        "The connector only reads.",
        "Connectors such as `datagen` accept no rows.",
        "insert into another table.",
    ),
    ErrorCode(
        "missing-primary-key",
        Family.SQL,
        "A table of the connector `upsert-kafka` has no `PRIMARY KEY`.",
        "The primary key becomes the key of the records, by which rows are changed and deleted.",
        "declare `PRIMARY KEY (…) NOT ENFORCED`.",
    ),
    ErrorCode(
        "primary-key",
        Family.UNSUPPORTED,
        "A Kafka table that keeps every record has a `PRIMARY KEY`.",
        "With this format several records can have the same key, so the key would not be unique.",
        "leave the `PRIMARY KEY` out, or use the connector `upsert-kafka`.",
    ),
    ErrorCode(
        "sink-key",
        Family.UNSUPPORTED,
        "The `PRIMARY KEY` of the target does not identify the query's updating rows.",
        "An update is written by the key of the table. If the query has another unique key or none, updates "
        "would overwrite the wrong rows.",
        "select the columns of `GROUP BY`, and make them the `PRIMARY KEY`.",
    ),
    ErrorCode(
        "sink-in-source",
        Family.SQL,
        "A stream writes a table into the folder of a table that it reads.",
        "A stream reads every file that appears in the folder of a table, and in the folders below it: it would read "
        "its own rows, write them again, and never end.",
        "write the table to another folder. Files and folders whose names begin with `.` or `_` are not read.",
    ),
    ErrorCode(
        "updates-into-appends",
        Family.UNSUPPORTED,
        "The query updates its result, but the table accepts only inserts.",
        "A connector such as `filesystem`, or `kafka` with an append-only format, cannot change rows that it "
        "has written.",
        "write to an `upsert-kafka`, `jdbc` or `delta` table with a `PRIMARY KEY`, or aggregate by windows, whose "
        "rows are final.",
    ),
    ErrorCode(
        "unbounded-source",
        Family.SQL,
        "A batch reads an unbounded `datagen` table.",
        "Without `number-of-rows` the connector generates rows forever, so a batch would never end.",
        "set `number-of-rows`.",
    ),
    ErrorCode(
        "datagen-type",
        Family.UNSUPPORTED,
        "`datagen` does not generate values of this type.",
        "It generates scalar values, so arrays, maps and rows are not possible. A sequence must be a number "
        "or a string.",
        "use another type, or build the value in the query.",
    ),
    ErrorCode(
        "file-system",
        Family.UNSUPPORTED,
        "A path names a file system that cannot be used here.",
        "The connector `filesystem` and job directories use local paths, and paths of `s3a`, `hdfs`, `gs`, `abfs` and "
        "`abfss`. Other files are local, and so are all tables with `--engine memory`. Such a path is never taken for "
        "a local folder whose name looks like `s3:`.",
        "write `s3a://` for S3; mount another file system, and use its local path.",
    ),
    ErrorCode(
        "credentials-in-path",
        Family.COMMAND,
        "The URI of a job directory or of a table contains a user name or password.",
        "URIs appear in logs, plans and job directories, so they must not contain secrets. Stores do not read them "
        "there either.",
        "write the URI without the part before the `@`, and give the credentials to Spark: environment variables, or "
        "`--conf spark.hadoop.fs.s3a.access.key=…`.",
    ),
    ErrorCode(
        "no-column-left",
        Family.SQL,
        "All columns of a table are in `PARTITIONED BY`.",
        "Partition columns are stored in folder names, so the files would have no columns.",
        "leave at least one column out of `PARTITIONED BY`.",
    ),
    ErrorCode(
        "partition-type",
        Family.UNSUPPORTED,
        "A partition column has a type that a folder cannot be named after.",
        "Values of `PARTITIONED BY` columns become folder names, so arrays, maps, rows and bytes are not possible.",
        "partition by another column, or by a `CAST` of it to `STRING`.",
    ),
    ErrorCode(
        "avro-type",
        Family.UNSUPPORTED,
        "The format `avro` does not support the column.",
        "Names in Avro consist of letters, digits and `_`, and the keys of its maps are `STRING`. Some types, "
        "such as `MULTISET`, have no equivalent.",
        "choose another name or type, or the format `json`.",
    ),
    ErrorCode(
        "csv-type",
        Family.UNSUPPORTED,
        "The format `csv` does not support the column.",
        "CSV has no nested values: maps, and collections within collections, have no representation.",
        "use the format `json` or `parquet`.",
    ),
    ErrorCode(
        "json-map-key",
        Family.UNSUPPORTED,
        "The keys of a `MAP` column in JSON are not `STRING`.",
        "The keys of a JSON object are always strings.",
        "declare the column as `MAP<STRING, …>`.",
    ),
    ErrorCode(
        "raw-columns",
        Family.UNSUPPORTED,
        "A table of the format `raw` does not have exactly one column.",
        "A raw record is the bytes of one value.",
        "declare one column, or use another format.",
    ),
    ErrorCode(
        "raw-type",
        Family.UNSUPPORTED,
        "The column of a `raw` table has an unsupported type.",
        "The format takes `STRING`, `BYTES`, `BOOLEAN`, integers, `FLOAT` and `DOUBLE`.",
        "declare one of these types, and `CAST` in the query.",
    ),
    ErrorCode(
        "format-of-changes",
        Family.UNSUPPORTED,
        "A table of `upsert-kafka` has a changelog format.",
        "In formats such as `debezium-json` a record is a change. In an `upsert-kafka` topic each record is a row.",
        "use the connector `kafka`, or the format `json`.",
    ),
    ErrorCode(
        "one-topic",
        Family.UNSUPPORTED,
        "A table of `upsert-kafka` has several topics.",
        "A key can be changed only in the topic that holds it.",
        "name one topic in the option `topic`.",
    ),
    ErrorCode(
        "sink-topics",
        Family.UNSUPPORTED,
        "A table with several topics is written to.",
        "The connector `kafka` writes to one topic per table.",
        "declare a table with one topic, and insert into that.",
    ),
    ErrorCode(
        "java-key-store",
        Family.UNSUPPORTED,
        "A key store has a format that only Java can read.",
        "Stores of Kafka are read with librdkafka: `PEM`, and `PKCS12` for key stores; the default of "
        "`ssl.truststore.type` is `JKS`. Stores of a schema registry are PEM files.",
        "convert the store to PEM with `keytool` or `openssl`, and set the option `properties.ssl.….type`.",
    ),
    ErrorCode(
        "jdbc-type",
        Family.UNSUPPORTED,
        "The connector `jdbc` does not support the type of a column.",
        "The connector reads and writes scalar values: arrays, maps and rows have no equivalent.",
        "use another type, or write the value as JSON in a `STRING`.",
    ),
    ErrorCode(
        "wrong-shape",
        Family.ENVIRONMENT,
        "A table of PostgreSQL does not match its declaration.",
        "A column is missing or has another type, a generated or `NOT NULL` column cannot be filled, or the "
        "`PRIMARY KEY` has no unique constraint or takes different strings for equal (`CHAR(n)`, `citext`, some "
        "collations). All mismatches are reported together.",
        "change the declaration or the table in PostgreSQL.",
    ),
    ErrorCode(
        "old-server",
        Family.ENVIRONMENT,
        "The PostgreSQL server is too old.",
        "Writing needs PostgreSQL 12 or newer.",
        "upgrade the server.",
    ),
    ErrorCode(
        "no-such-table",
        Family.ENVIRONMENT,
        "PostgreSQL has no table of this name.",
        "everfold does not create tables. The name in `table-name` may have a schema, as in `sales.orders`.",
        "create the table first, or correct the option `table-name`.",
    ),
    ErrorCode(
        "no-such-schema",
        Family.ENVIRONMENT,
        "PostgreSQL has no schema of this name.",
        "The option `sink.bookkeeping-schema` names the schema for everfold's own tables, which record the "
        "batches that were written.",
        "create the schema, or correct the option.",
    ),
    ErrorCode(
        "jdbc-permission",
        Family.ENVIRONMENT,
        "The user of a PostgreSQL table lacks a privilege.",
        "Reading needs `SELECT`. Writing needs the privileges to change the table, and `CREATE` in the schema of "
        "everfold's own tables, which `sink.bookkeeping-schema` can set. The message names what was denied.",
        "grant the privilege to the user.",
    ),
    ErrorCode(
        "jdbc-refused",
        Family.ENVIRONMENT,
        "PostgreSQL rejects the connection.",
        "The user name, the password or the database is wrong, or the server does not accept the client's address.",
        "correct the options `url`, `username` and `password`, or the configuration of the server.",
    ),
    ErrorCode(
        "jdbc-unreachable",
        Family.ENVIRONMENT,
        "PostgreSQL does not answer.",
        "The server is down, the address is wrong, or the connection was lost and did not recover within the "
        "retries. No row is lost or written twice.",
        "check that the server is running at this address, and run the same command again.",
    ),
    ErrorCode(
        "jdbc-failed",
        Family.ENVIRONMENT,
        "A statement failed in PostgreSQL.",
        "The message has the error of PostgreSQL, which is none of the specific ones.",
        "resolve what PostgreSQL reports, and run the same command again.",
    ),
    ErrorCode(
        "staging-lost",
        Family.ENVIRONMENT,
        "Rows of a staging table in PostgreSQL are missing.",
        "The tasks of a batch write to a staging table, and one transaction merges it into the target. The "
        "table was truncated, or the server lost its rows.",
        "run the same command again: the batch is written again.",
    ),
    ErrorCode(
        "kafka-unreachable",
        Family.ENVIRONMENT,
        "No Kafka broker answers.",
        "The brokers in `properties.bootstrap.servers` are down or not reachable from this machine, or a "
        "request timed out.",
        "check that a broker is running at the address, and run the same command again.",
    ),
    ErrorCode(
        "kafka-refused",
        Family.ENVIRONMENT,
        "Kafka refuses a request.",
        "The message has the error of Kafka, for example a failed authentication or a missing authorization.",
        "resolve what Kafka reports: usually the `properties.…` options of the table, or the permissions of the user.",
    ),
    ErrorCode(
        "kafka-data-lost",
        Family.ENVIRONMENT,
        "Records that the job has not read yet are gone from a topic.",
        "The retention of the topic is shorter than the time for which the job was stopped or behind, somebody has "
        "deleted records or partitions, or the topic ends earlier than before, as after an unclean election of a "
        "leader. The message has the partitions and offsets.",
        "restore the records, or run the command with `--source TABLE=skip`: the job continues after the gap with its "
        "state, and `everfold history` and `everfold status` show what is missing. A longer retention avoids it.",
    ),
    ErrorCode(
        "kafka-jars",
        Family.ENVIRONMENT,
        "Spark's Kafka connector could not be downloaded.",
        "The first use of a Kafka table downloads the connector from Maven Central.",
        "connect the machine to the network, or configure an Ivy cache that has the jars with `--conf "
        "spark.jars.ivy=…`.",
    ),
    ErrorCode(
        "delta-jars",
        Family.ENVIRONMENT,
        "Delta Lake could not be downloaded or loaded.",
        "The first use of a Delta table downloads two jars from Maven Central into the cache.",
        "connect the machine to the network, or configure an Ivy cache that has the jars with `--conf "
        "spark.jars.ivy=…`. With a session of your own, start it with the package that the message names.",
    ),
    ErrorCode(
        "delta-type",
        Family.UNSUPPORTED,
        "Delta Lake has no type for a column.",
        "Delta tables have neither `TIME` nor `INTERVAL` columns.",
        "declare the column as a `STRING` or a number, and convert it in the query.",
    ),
    ErrorCode(
        "delta-name",
        Family.UNSUPPORTED,
        "Delta Lake does not allow the name of a column.",
        "A name must not contain spaces or any of the characters `,;{}()=`, and names that differ only in case are "
        "the same.",
        "rename the column.",
    ),
    ErrorCode(
        "delta-time-travel",
        Family.UNSUPPORTED,
        "A stream reads an old version of a Delta table.",
        "`versionAsOf` and `timestampAsOf` select the rows of one version, for queries in batch mode and for joins. "
        "A stream reads the table and what is added to it.",
        "run the query with `--batch`, or start the stream at a version with `'mode' = 'streaming'` and "
        "`startingVersion`.",
    ),
    ErrorCode(
        "delta-version",
        Family.ENVIRONMENT,
        "A Delta table has no version to start from.",
        "`startingVersion` is later than the newest version, or no version is as new as `startingTimestamp`.",
        "correct the option. The history of the table lists its versions with their times.",
    ),
    ErrorCode(
        "not-delta",
        Family.ENVIRONMENT,
        "A folder is not a Delta table.",
        "A table that is read must exist. A table that is written is created, but only in a folder without other "
        "files.",
        "correct `table-path`.",
    ),
    ErrorCode(
        "delta-schema",
        Family.ENVIRONMENT,
        "The columns of a Delta table are not those of the `CREATE TABLE` statement.",
        "All columns must exist with the declared types. A table that is written must have no other columns and the "
        "same partitions.",
        "change the statement, or the Delta table. The message lists all differences.",
    ),
    ErrorCode(
        "delta-changed",
        Family.ENVIRONMENT,
        "A Delta table that a stream reads has updated or deleted rows.",
        "A stream reads the rows that are added to a table. Rows that it has read before cannot be retracted.",
        "skip such commits with `ignoreDeletes` or `skipChangeCommits`, or compute the result from the beginning "
        "with another `--state` folder.",
    ),
    ErrorCode(
        "delta-lost",
        Family.ENVIRONMENT,
        "A Delta table no longer has a version that the job needs.",
        "The log or the files of the version were removed, by the retention of the table or by `VACUUM`, before "
        "the job had read them.",
        "start a new job with another `--state` folder, and a longer retention of the table.",
    ),
    ErrorCode(
        "delta-replaced",
        Family.ENVIRONMENT,
        "A Delta table was created again or has other columns than before.",
        "The position of the job belongs to the table that it has read.",
        "run the same command again after a change of columns. For a new table, add `--source TABLE=new` or use "
        "another `--state` folder.",
    ),
    ErrorCode(
        "delta-refused",
        Family.ENVIRONMENT,
        "Delta Lake refuses a request.",
        "The message has the error of Delta, for example a violated constraint of the table, or a conflict with "
        "another writer.",
        "resolve what Delta reports, and run the same command again.",
    ),
    ErrorCode(
        "no-iceberg",
        Family.UNSUPPORTED,
        "Tables of Apache Iceberg cannot be used.",
        "Iceberg has no release for Spark 4.2. Its newest release fails there at the first access to a table.",
        "use the connector `delta`, or Parquet files.",
    ),
    ErrorCode(
        "registry-unreachable",
        Family.ENVIRONMENT,
        "The schema registry does not answer.",
        "Each server of the option `url` was asked several times, without an answer or with an internal error.",
        "check the option and the registry, and run the same command again. No rows are lost or duplicated.",
    ),
    ErrorCode(
        "registry-refused",
        Family.ENVIRONMENT,
        "The schema registry refuses a request.",
        "The message has the reason of the registry: for example a missing permission, or a schema that is not "
        "compatible with earlier ones of its subject.",
        "resolve what the registry reports. For an incompatible schema, change the columns of the table, or the "
        "compatibility of the subject.",
    ),
    ErrorCode(
        "no-file-system",
        Family.SETUP,
        "Spark has no classes for the file system of a path.",
        "Spark does not include the classes for some schemes, for example those for `s3a`.",
        "for `s3a`, run `everfold check-setup --with s3` once on each machine. For other schemes, add the jars with "
        "`--conf spark.driver.extraClassPath=…` and `--conf spark.executor.extraClassPath=…`.",
    ),
    ErrorCode(
        "store-jars",
        Family.ENVIRONMENT,
        "The jars for S3 could not be downloaded.",
        "`everfold check-setup --with s3` downloads 690 MB from Maven Central.",
        "connect the machine to the network and repeat the command, or put the jars into the folder that the "
        "message names.",
    ),
    ErrorCode(
        "no-such-topic",
        Family.ENVIRONMENT,
        "The Kafka topic does not exist.",
        "No topic has the name in `topic`, no topic matches `topic-pattern`, or the topic was deleted while "
        "the job was running.",
        "create the topic, or correct the option.",
    ),
    ErrorCode(
        "no-such-partition",
        Family.ENVIRONMENT,
        "A Kafka topic has no partition of this number.",
        "The options `scan.startup.specific-offsets` and `scan.bounded.specific-offsets` name partitions, "
        "which are numbered from 0.",
        "correct the partition in the option.",
    ),
    ErrorCode(
        "no-group-offsets",
        Family.ENVIRONMENT,
        "The consumer group has committed no offsets.",
        "The startup mode is `group-offsets`, the default, and the group in `properties.group.id` has not "
        "read the topic yet.",
        "set `scan.startup.mode` to `earliest-offset`, or `properties.auto.offset.reset` to `earliest` or `latest`.",
    ),
    ErrorCode(
        "no-such-path",
        Family.ENVIRONMENT,
        "The path of a table does not exist.",
        "Relative paths start at the folder of the script. The message has the full path.",
        "create the file or folder, or correct the option `path`.",
    ),
    ErrorCode(
        "no-permission",
        Family.ENVIRONMENT,
        "A file or folder cannot be read or written by this user.",
        "The permissions deny it, or the file system is mounted read-only. The file belongs to a table or to "
        "the job directory.",
        "grant the permission, or run as another user.",
    ),
    ErrorCode(
        "not-a-folder",
        Family.ENVIRONMENT,
        "A folder is needed, and the path is a file.",
        "The path of a job directory or of a table that is written must be a folder or must not exist.",
        "use another path, or move the file.",
    ),
    ErrorCode(
        "disk-full",
        Family.ENVIRONMENT,
        "The disk is full, or the quota is used up.",
        "The batch could not be completed. The job has not lost anything: its checkpoint is at the last "
        "finished batch.",
        "free some space and run the same command again, which resumes after the last finished batch.",
    ),
    ErrorCode(
        "file-system-error",
        Family.ENVIRONMENT,
        "A file operation failed.",
        "The message has the reason of the operating system, for example an input/output error or a name that "
        "is too long. Values of `PARTITIONED BY` columns become folder names.",
        "resolve what the message reports, and run the same command again.",
    ),
    ErrorCode(
        "link-loop",
        Family.ENVIRONMENT,
        "A symbolic link in the folder of a table leads back to a folder that contains it.",
        "Reading the folder would never end.",
        "move the link to another folder.",
    ),
    ErrorCode(
        "bad-file-name",
        Family.ENVIRONMENT,
        "Spark cannot read a file because of its name.",
        "The name contains a `:` or is not valid UTF-8.",
        "rename the file.",
    ),
    ErrorCode(
        "bad-file",
        Family.ENVIRONMENT,
        "A file cannot be decoded.",
        "It is damaged, is not of the format that the table declares, or has a value that the column's type does "
        "not have, such as a time after the year 9999 or a STRING that is not UTF-8. In a stream of Parquet files "
        "in another store than the local disk, the times of a column must be in nanoseconds in all files, or in none.",
        "fix the file, or move it to another folder, and run the same command again.",
    ),
    ErrorCode(
        "wrong-column-type",
        Family.ENVIRONMENT,
        "A column of a Parquet file has another type than the table declares.",
        "The message has both types. Only conversions without loss, such as from `INT` to `BIGINT`, are made.",
        "declare the type of the file, and `CAST` in the query.",
    ),
    ErrorCode(
        "file-gone",
        Family.ENVIRONMENT,
        "A file was removed before the job read it.",
        "The file had been listed for a batch and no longer exists. Nothing is lost: the batch is still planned.",
        "put the file back, and run the same command again.",
    ),
    ErrorCode(
        "job-in-source",
        Family.ENVIRONMENT,
        "The job directory lies in a folder that a table reads.",
        "The job would read its own files.",
        "name a job directory outside of the folder with `--state FOLDER`.",
    ),
    ErrorCode(
        "target-in-job",
        Family.ENVIRONMENT,
        "A table writes into the job directory.",
        "The files of the table and of the job would be mixed.",
        "use another `path` for the table.",
    ),
    ErrorCode(
        "target-in-checkpoint",
        Family.ENVIRONMENT,
        "The path of a table is a checkpoint of Spark.",
        "Files of a table in a checkpoint would damage it.",
        "use another `path` for the table.",
    ),
)
