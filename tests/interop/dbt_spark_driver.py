"""Build a dbt project twice with dbt-spark's method `session`; print the rows of its tables.

Argument: a folder for the project. The set-up is the script of the documentation.
"""

import json
import re
import sys
from pathlib import Path

from dbt.cli.main import dbtRunner

from txlog import spark_ext

HOME = Path(sys.argv[1])
PAGE = Path(__file__).parents[2] / "docs" / "neighbours" / "dbt.md"
FILES = {
    "dbt_project.yml": """
name: shop
version: "1.0"
profile: shop
models: {+file_format: delta}
seeds: {+file_format: delta}
snapshots: {+file_format: delta}
""",
    "profiles.yml": """
shop:
  target: here
  outputs:
    here: {type: spark, method: session, schema: shop, host: none, threads: 1}
""",
    "models/whole.sql": """
{{ config(materialized="table", partition_by="day",
          persist_docs={"relation": true, "columns": true}) }}
select id, name, day from {{ ref("raw") }}
""",
    "models/schema.yml": """
models:
  - name: whole
    description: all people
    columns: [{name: id, description: the key, data_tests: [unique, not_null]}]
""",
    "models/seen.sql": """
{{ config(materialized="view") }} select id, upper(name) as name from {{ ref("whole") }}
""",
    "models/added.sql": """
{{ config(materialized="incremental", on_schema_change="append_new_columns") }}
select id, name{% if var("more", false) %}, 1 as extra{% endif %} from {{ ref("raw") }}
{% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
""",
    "models/merged.sql": """
{{ config(materialized="incremental", incremental_strategy="merge", unique_key="id") }}
select id, name from {{ ref("raw") }}
""",
    "models/days.sql": """
{{ config(materialized="incremental", incremental_strategy="insert_overwrite",
          partition_by="day") }}
select id, name, day from {{ ref("raw") }}
""",
    "snapshots/people.sql": """
{% snapshot people %}
{{ config(target_schema="shop", unique_key="id", strategy="check", check_cols=["name"],
          invalidate_hard_deletes=True) }}
select id, name from {{ ref("raw") }}
{% endsnapshot %}
""",
}


def built(rows: str, *more: str) -> None:
    """Build all of the project from the rows of the seed."""
    (HOME / "seeds/raw.csv").write_text(f"id,name,day\n{rows}", encoding="utf-8")
    where = ["--project-dir", str(HOME), "--profiles-dir", str(HOME)]
    done = dbtRunner().invoke(["build", *where, "--no-send-anonymous-usage-stats", *more])
    assert done.success, done.exception or [
        (one.node.name, one.message)
        for one in done.result.results
        if one.status not in ("success", "pass")
    ]


def main() -> None:
    """Build the project twice, and print what its tables have."""
    for name, text in {**FILES, "seeds/raw.csv": ""}.items():
        (HOME / name).parent.mkdir(parents=True, exist_ok=True)
        (HOME / name).write_text(text, encoding="utf-8")
    spark = spark_ext.session(
        "dbt",
        spark__master="local[2]",
        spark__ui__enabled="false",
        spark__sql__shuffle__partitions="2",
        spark__sql__warehouse__dir=str(HOME / "warehouse"),
    )
    (script,) = re.findall(r"^```py\n((?:.*\n)*?)```$", PAGE.read_text("utf-8"), re.MULTILINE)
    exec(script, {"__name__": "build"})
    built("1,Ann,2024-01-01\n2,Bob,2024-01-02\n")
    built("2,Bea,2024-01-02\n3,Cid,2024-01-03\n", "--vars", "{more: true}")
    queries = {
        "whole": "SELECT id, name FROM shop.whole",
        "seen": "SELECT * FROM shop.seen",
        "added": "SELECT id, name, extra FROM shop.added",
        "merged": "SELECT * FROM shop.merged",
        "days": "SELECT id, name FROM shop.days",
        "people": "SELECT id, name, dbt_valid_to IS NULL FROM shop.people",
    }
    found = {
        name: sorted(list(row) for row in spark_ext.sql(spark, query).collect())
        for name, query in queries.items()
    }
    found["versions"] = spark_ext.sql(spark, "DESCRIBE HISTORY shop.whole").count()
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":  # dbt starts processes, which import this module.
    main()
