"""Error codes: jobs and their state."""

from __future__ import annotations

from everfold.error_codes.entry import ErrorCode, Family

ENTRIES = (
    ErrorCode(
        "incompatible-change",
        Family.JOB,
        "The query has changed, and the new one cannot use the job's state.",
        "The report in the message names the operators and rules. `everfold check` prints the same without "
        "running anything.",
        "choose `--on-change rebuild` to read the input from its beginning, `--on-change reset` to continue "
        "without the state, or another `--state` folder. The old query still resumes the job.",
    ),
    ErrorCode(
        "unknown-change",
        Family.JOB,
        "The query has changed, and it is not known whether the state is still valid.",
        "A rule could not prove that the state has the same meaning in the new query, so it is not used.",
        "choose `--on-change rebuild` or `--on-change reset`, or another `--state` folder. The old query "
        "still resumes the job.",
    ),
    ErrorCode(
        "partial-change",
        Family.JOB,
        "The query has changed, and the new one can reuse only part of the state.",
        "New or changed aggregates have no state. In a case file, the step needs `on_change`.",
        "choose `--on-change accept` to start new aggregates now, `--on-change backfill` to compute them over "
        "the input already read, or `rebuild` or `reset` to discard the state.",
    ),
    ErrorCode(
        "reshaped-query",
        Family.JOB,
        "The new query adds an operator that cannot be added to this job.",
        "The job has no stateful operator, so its checkpoint has no place for one; or it was last run by a "
        "version of everfold that did not record the sources.",
        "run the old query once more with this version, or use `--on-change rebuild` or another `--state` "
        "folder, as the message says.",
    ),
    ErrorCode(
        "unfinished-batch",
        Family.JOB,
        "The job was interrupted during a batch, which only the old query can finish.",
        "A batch is written with the query that planned it. The new query would give the sink different rows "
        "for the same batch.",
        "run the old query once more and stop it before changing it, or use `--on-change rebuild`.",
    ),
    ErrorCode(
        "unfinished-change",
        Family.JOB,
        "The job was interrupted before the first batch of its last change.",
        "That batch reads the backfill of new aggregates, and is needed before the next change.",
        "run that query once more before changing it, or use `--on-change rebuild`.",
    ),
    ErrorCode(
        "no-backfill",
        Family.JOB,
        "A new part of the query cannot be backfilled.",
        "`--on-change backfill` computes new aggregates over the input that was already read. The message has "
        "the reason why this is not possible here.",
        "use `--on-change accept`, which starts the new part now, or `--on-change rebuild`.",
    ),
    ErrorCode(
        "no-past",
        Family.JOB,
        "The rows that a source has delivered cannot be read again.",
        "A backfill needs the past input. This connector does not store its rows, or the source is a "
        "streaming DataFrame.",
        "use `--on-change accept`, which starts new aggregates now.",
    ),
    ErrorCode(
        "changed-source",
        Family.JOB,
        "A table of the job now has another location, or its topic was deleted and created again.",
        "The job has a position in the old files or topics. It cannot know whether the new ones are the same data. "
        "A topic that was created again under its name has another id, and its offsets begin again.",
        "pass `--source TABLE=moved` if the same data was moved, or a topic was restored with its offsets, or "
        "`--source TABLE=new` if it is other data, which is then read from its start. The state is kept.",
    ),
    ErrorCode(
        "changed-sink",
        Family.JOB,
        "A table that the job writes now has another location, or the job has not written it yet.",
        "The rows that the job has written so far are at the old location, or in another table. This one would "
        "receive only what changes from now on.",
        "pass `--sink TABLE=refresh` to write the current result to it, as far as the state holds it, "
        "`--sink TABLE=empty` to write changes only (also if you have copied the rows there), or "
        "`--sink TABLE=rebuild` to compute the whole result again.",
    ),
    ErrorCode(
        "changed-query",
        Family.JOB,
        "The state in the checkpoint belongs to another query.",
        "The operators found state of another shape than their query has. This can happen if files of a "
        "checkpoint are copied between jobs.",
        "use the job directory of this query, or another `--state` folder.",
    ),
    ErrorCode(
        "changed-zone",
        Family.JOB,
        "The session's time zone is not that of the job's state.",
        "Windows and days in the state were computed in the old time zone.",
        "`SET 'table.local-time-zone'` to the old value, or use another `--state` folder.",
    ),
    ErrorCode(
        "foreign-state",
        Family.JOB,
        "The state lacks a key of the query.",
        "The stored rows were written by a query with other grouping keys.",
        "start a new job with another `--state` folder, or use `--on-change reset`.",
    ),
    ErrorCode(
        "streaming-job",
        Family.JOB,
        "A batch query uses the directory of a streaming job.",
        "A batch writes its whole result at once, and would write again what the stream has written.",
        "run the query as a stream, or with another `--state` folder.",
    ),
    ErrorCode(
        "job-is-running",
        Family.JOB,
        "Another process is running the job.",
        "A job directory is locked while a job runs, because two writers would damage it. After a kill, the "
        "lock is released when the Java process ends. In another store than the local disk the process gives signs "
        "of life; after 30 seconds without one, another process may take the job over.",
        "stop the other process, or wait for it to end.",
    ),
    ErrorCode(
        "stop-timeout",
        Family.JOB,
        "The job has not stopped in time.",
        "`everfold stop` asks the process that runs the job to stop, which it does after the running batch. A job "
        "that is starting, and a job in batch mode, do not look for such a request.",
        "wait with a longer `--timeout`, or end the process that the message names: the next start replays the batch.",
    ),
    ErrorCode(
        "job-taken-over",
        Family.JOB,
        "Another process has taken the job over.",
        "This process gave no sign of life for 30 seconds, for example because it was paused or could not reach the "
        "store. Another process runs the job now. This one has stopped and has written nothing since.",
        "nothing, if the other process is meant to run the job; otherwise stop that one, and run the job again.",
    ),
    ErrorCode(
        "damaged-manifest",
        Family.JOB,
        "The manifest of the job directory is damaged.",
        "The file describes the versions of the job, and cannot be parsed.",
        "restore the job directory from a backup, or start with a new `--state` folder.",
    ),
    ErrorCode(
        "newer-manifest",
        Family.JOB,
        "The job directory was written by a newer version of everfold.",
        "Its format is not known to this version.",
        "run the job with that version, or start with a new `--state` folder.",
    ),
    ErrorCode(
        "damaged-checkpoint",
        Family.JOB,
        "A file of the job's checkpoint is damaged or missing.",
        "Files were removed or changed by something else, or the disk lost them.",
        "restore the whole job directory from a backup, or start from scratch with another `--state` folder.",
    ),
    ErrorCode(
        "damaged-page",
        Family.JOB,
        "A page of the state is damaged or missing.",
        "Pages have checksums, and this one does not match, the page was written by another version of "
        "everfold, or the state store lacks it.",
        "restore the whole job directory from a backup, or start from scratch with another `--state` folder.",
    ),
    ErrorCode(
        "damaged-record",
        Family.JOB,
        "The record of a written batch is damaged.",
        "The filesystem sink records each batch in the job directory and in the target folder, in order to "
        "write it exactly once. The file that the message names cannot be parsed.",
        "restore it from a backup, or start from scratch with another `--state` folder and `path`.",
    ),
    ErrorCode(
        "lost-record",
        Family.JOB,
        "The record of a batch that was being published is gone.",
        "The target folder has files of the batch, but the job directory has no record of it, as after "
        "restoring an older copy of the job directory.",
        "put the newest copy of the job directory in place, or run `everfold rollback FOLDER --restored`.",
    ),
    ErrorCode(
        "lost-file",
        Family.JOB,
        "A file of a finished batch is gone from the target folder.",
        "The batch was being published, and the file was removed between two runs. Its rows cannot be written again.",
        "restore the file, or start from scratch with another `--state` folder and `path`.",
    ),
    ErrorCode(
        "sink-ahead",
        Family.JOB,
        "A sink holds a later batch than the job's checkpoint.",
        "The job directory is older than the table, as after restoring it from a backup. Writing would "
        "duplicate or lose rows, so nothing was written.",
        "put the newest copy of the job directory in place, or run `everfold rollback FOLDER --restored`, "
        "which first reports the effect on each table.",
    ),
    ErrorCode(
        "sink-behind",
        Family.JOB,
        "A sink lacks batches that the job has written to it.",
        "The table is older than the job directory, as after restoring a database from a dump, or after a failover to "
        "a standby that lags. The rows of the batches between would be missing forever, so nothing was written.",
        "run the `everfold rollback` that the error names, which reads the input again after the last batch of the "
        "table; or pass `--sink TABLE=refresh` to write the current result, as far as the state holds it, "
        "`--sink TABLE=rebuild` to compute it again, or `--sink TABLE=empty` to write changes only, also if you have "
        "restored the rows.",
    ),
    ErrorCode(
        "sink-taken-over",
        Family.JOB,
        "Another run of this job writes to the table now.",
        "A later run has taken over the target, as when a copy of the job directory is started elsewhere. "
        "This run stops in order not to write rows twice.",
        "keep only one run of the job.",
    ),
    ErrorCode(
        "sink-duplicates",
        Family.JOB,
        "A rollback or rebuild would write rows twice to a table.",
        "The table cannot change or delete rows, so replayed rows are appended.",
        "pass `--sink-duplicates accept` if its readers can handle duplicates, or write to another table.",
    ),
    ErrorCode(
        "no-batch",
        Family.JOB,
        "The job has not finished a batch yet.",
        "Its state can be shown after the first batch.",
        "run the job first.",
    ),
    ErrorCode(
        "unreadable-state",
        Family.JOB,
        "The state of the job cannot be read.",
        "`everfold state` reads the checkpoint with Spark, which failed. The message has the reason; a "
        "running job may remove files meanwhile.",
        "stop the job if it is running, and try again.",
    ),
    ErrorCode(
        "unknown-aggregate-state",
        Family.JOB,
        "The stored state of an aggregate has an unknown format.",
        "`everfold state` knows the formats of its own version. The job was written by another version.",
        "use the version of everfold that runs the job.",
    ),
    ErrorCode(
        "current-version",
        Family.JOB,
        "The version to roll back to is already the current one.",
        "A rollback resumes an earlier version of the query.",
        "name another version. `everfold history FOLDER` lists them.",
    ),
    ErrorCode(
        "expired-version",
        Family.JOB,
        "A rollback to a version that is expired.",
        "`everfold expire` has removed the state of the version, to free space.",
        "roll back to one of the versions that the message lists, or run the query of that version with "
        "`--on-change rebuild`.",
    ),
    ErrorCode(
        "checkpoint-gone",
        Family.JOB,
        "The checkpoint of a version no longer exists.",
        "It was removed, or the version never ran.",
        "run the query of that version with `--on-change rebuild`.",
    ),
    ErrorCode(
        "batch-gone",
        Family.JOB,
        "The checkpoint of a version does not hold a batch.",
        "Spark keeps what is needed to resume after the last 100 batches. The batch is older, belongs to another "
        "version, or was not finished.",
        "name one of the batches in the message, or run the query with `--on-change rebuild`.",
    ),
    ErrorCode(
        "spark-died",
        Family.ENVIRONMENT,
        "The Spark JVM or a Python worker exited unexpectedly.",
        "It was killed or has crashed, often because the machine is short of memory.",
        "run the same command again to resume. With too little memory, pass `--conf spark.driver.memory=4g`.",
    ),
    ErrorCode(
        "out-of-memory",
        Family.ENVIRONMENT,
        "Spark is out of memory.",
        "The heap of the JVM is too small for a batch.",
        "pass a larger value, such as `--conf spark.driver.memory=4g`, and run the same command again.",
    ),
    ErrorCode(
        "no-worker",
        Family.ENVIRONMENT,
        "A Python worker of Spark did not start within ten seconds.",
        "The machine is overloaded, so the worker could not connect in time.",
        "run the same command again to resume, with fewer jobs on the machine.",
    ),
    ErrorCode(
        "missing-worker-package",
        Family.ENVIRONMENT,
        "The Python of Spark's workers lacks a package that the job needs.",
        "Workers run with the Python that `PYSPARK_PYTHON` names on their machine, or with the first one in its "
        "`PATH`. It needs everfold's dependencies, such as pyarrow, and those of your functions.",
        "install the package there on every machine of the cluster, or set `PYSPARK_PYTHON`. Then run the same "
        "command again to resume.",
    ),
    ErrorCode(
        "job-failed",
        Family.ENVIRONMENT,
        "The job failed for a reason that everfold does not recognize.",
        "The message has the innermost cause that Spark or DuckDB reports. On Spark, the log in the job directory has "
        "the details.",
        "read the log, resolve the cause, and run the same command again to resume.",
    ),
    ErrorCode(
        "executor-path",
        Family.ENVIRONMENT,
        "An executor of the cluster does not share a folder with the driver, or does not reach a store.",
        "Before its first batch, a job on a cluster checks on every executor the job directory, the tables that "
        "it reads from files and those that it writes. Without a shared file system each machine would keep state "
        "and files on its own disk. Executors that join later are checked before and after each batch.",
        "mount the same file system at the same path on every machine, writable for the user of the executors. For "
        "a store, give every machine its classes, the network and the credentials.",
    ),
    ErrorCode(
        "executor-python",
        Family.ENVIRONMENT,
        "The executors of the cluster have no suitable Python.",
        "Before its first batch, a job on a cluster compares the versions of Python, everfold, Polars, pyarrow, "
        "DuckDB and NumPy on every executor with those of the driver. Other versions could compute other results.",
        "install the driver's versions on every machine and set `spark.pyspark.python` to that Python, or send a "
        "packed environment with `spark.archives`.",
    ),
)
