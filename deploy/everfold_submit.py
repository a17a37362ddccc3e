"""The script to pass to spark-submit: `spark-submit … everfold_submit.py run job.sql`."""

from everfold.cli.main import main

main()
