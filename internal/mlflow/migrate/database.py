# SPDX-License-Identifier: Apache-2.0
#
# Looks at the databases of an MLflow server ("preflight") or brings them to the
# schema of the MLflow in this image ("migrate"). What it found goes to the
# termination log as a sentence or two, the kind of failure into the exit code.
# Nothing that it prints has a password in it.
import os
import sys
import traceback
from urllib.parse import quote, quote_plus, unquote

WRONG_VERSION, BACKEND_DIALECT, REGISTRY_DIALECT, NOT_AT_HEAD, UNKNOWN_REVISION, FAILED = 10, 11, 12, 13, 14, 15

UNCHANGED = "The database was not changed."
MAYBE_CHANGED = "The database may have been changed."

# What Alembic says when the recorded revision does not fit its scripts.
GRAPH_PROBLEMS = (
    "can't locate revision identified by",
    "multiple heads are present",
    "cycle is detected in revisions",
    "dependency cycle detected",
    "has more than one head present",
)


class Stop(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Store:
    """One database: where it is, and how far it has come."""

    def __init__(self, name, uri, dialect_code):
        self.name = name
        self.uri = uri
        self.dialect_code = dialect_code
        self.dialect = ""
        self.url = None
        self.before = None
        self.started = False
        self.finished = False


def stores():
    backend = os.environ.get("MLFLOW_BACKEND_STORE_URI", "")
    registry = os.environ.get("MLFLOW_REGISTRY_STORE_URI", "") or backend
    found = [Store("backend", backend, BACKEND_DIALECT)]
    if registry != backend:
        found.append(Store("registry", registry, REGISTRY_DIALECT))
    return found


def parse(store):
    from sqlalchemy.engine import make_url

    try:
        store.url = make_url(store.uri)
        store.dialect = store.url.get_backend_name()
    except Exception:  # its text may quote the address with the password
        raise Stop(FAILED, f"The address of the {store.name} store cannot be read. "
                           "Check that special characters in the user and the password are percent-encoded.") from None
    if store.dialect not in ("sqlite", "postgresql", "mysql"):
        raise Stop(store.dialect_code, f"The {store.name} store uses {store.dialect}, "
                                       "but only sqlite, postgresql and mysql are supported.")


def check_version():
    wanted = plain(os.environ.get("SUPPORTED_MLFLOW_VERSION", ""))
    try:
        from mlflow.version import VERSION
    except ImportError:
        raise Stop(WRONG_VERSION, f"The image has no MLflow, but version {wanted} is needed.") from None
    if plain(VERSION) != wanted:
        raise Stop(WRONG_VERSION, f"The image has MLflow {plain(VERSION)}, but version {wanted} is needed.")


def plain(version):
    return version.strip().removeprefix("v").split("+")[0]


def connect(store):
    from mlflow.store.db import utils

    return utils.create_sqlalchemy_engine(store.uri)


def missing_file(store):
    """A SQLite file that is not there yet: opening it would make it."""
    path = store.url.database
    return store.dialect == "sqlite" and path not in (None, "", ":memory:") and not os.path.exists(path)


def scripts():
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    return ScriptDirectory.from_config(utils._get_alembic_config(""))


def gap_repair():
    """Some builds of MLflow can repair databases that an earlier build of them left half upgraded."""
    try:
        from mlflow.store.db.migration_gap import fix_migration_gap_if_needed
    except ImportError:
        return None
    return fix_migration_gap_if_needed


def inspect(store):
    """Why the store must be migrated; empty if it need not be."""
    from mlflow.store.db import utils

    if missing_file(store):
        return f"the {store.name} store is empty"
    engine = connect(store)
    try:
        store.before = utils._get_schema_version(engine)
        if store.before is None:
            return f"the {store.name} store has no schema of MLflow"
        known = scripts()
        head = known.get_current_head()
        if store.before not in {s.revision for s in known.walk_revisions()}:
            raise Stop(UNKNOWN_REVISION, f"The {store.name} store is at revision {store.before}, which the MLflow in "
                       f"this image does not know (its newest is {head}): the database was written by a newer MLflow, "
                       "or by something else.")
        if store.before != head:
            return f"the {store.name} store is at revision {store.before} and must come to {head}"
        if not utils._all_tables_exist(engine):
            return f"the {store.name} store says revision {head} but lacks tables"
    finally:
        engine.dispose()
    if store.name == "backend" and gap_repair() is not None:
        return "this image repairs what an earlier one may have left undone"
    return ""


def preflight(found):
    reasons = [r for r in (inspect(s) for s in found) if r]
    if reasons:
        return "To be migrated: " + "; ".join(reasons) + "."
    return f"Nothing to migrate: the database is at revision {found[0].before}, which MLflow needs."


def migrate(found):
    for store in found:
        inspect(store)  # refuses before anything is touched
    for store in found:
        upgrade(store)
    return f"The database is at revision {scripts().get_current_head()}."


def upgrade(store):
    from mlflow.store.db import utils

    utils._make_parent_dirs_if_sqlite(store.uri)
    engine = connect(store)
    try:
        store.started = True
        repair = gap_repair()
        if store.name == "backend" and repair is not None:
            repair(engine)
        if utils._get_schema_version(engine) is None:
            utils._initialize_tables(engine)
        else:
            utils._upgrade_db(engine)
        now, head = utils._get_schema_version(engine), scripts().get_current_head()
        if now != head:
            raise Stop(NOT_AT_HEAD, f"The {store.name} store is at revision {now} after the migration, "
                                    f"but should be at {head}.")
        store.finished = True
    finally:
        engine.dispose()


def untouched(store):
    """Whether a failure left the store as it was. Only PostgreSQL takes back a schema change that was not finished."""
    if not store.started:
        return True
    if store.finished or store.dialect != "postgresql" or store.before is None:
        return False
    from mlflow.store.db import utils

    try:
        engine = connect(store)
        try:
            return utils._get_schema_version(engine) == store.before
        finally:
            engine.dispose()
    except Exception:
        return False


def explain(error):
    """The cause in one line, without the statement and the data that SQLAlchemy adds."""
    cause = getattr(error, "orig", None) or error
    line = " ".join(str(cause).split()) or type(cause).__name__
    return line if len(line) <= 600 else line[:600] + "..."


def code_of(error):
    if isinstance(error, Stop):
        return error.code
    chain, text = error, ""
    while chain is not None:
        text += str(chain).lower()
        chain = chain.__cause__ or chain.__context__
    return UNKNOWN_REVISION if any(p in text for p in GRAPH_PROBLEMS) else FAILED


def secrets(found):
    """The passwords in every form in which they may be printed, longest first."""
    forms = set()
    for store in found:
        raw = store.uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
        passwords = {raw, unquote(raw)}
        if store.url is not None:
            passwords.add(str(store.url.password or ""))
            passwords.update(v for k, v in store.url.query.items() if isinstance(v, str) and "pass" in k.lower())
        for p in passwords:
            forms.update({p, quote(p, safe=""), quote_plus(p)})
        forms.add(store.uri)
    forms.discard("")
    return sorted(forms, key=len, reverse=True)


def scrub(text, found):
    for secret in secrets(found):
        text = text.replace(secret, "***")
    return text


def say(text):
    print(text, flush=True)
    try:
        with open(os.environ.get("MIGRATION_TERMINATION_LOG", "/dev/termination-log"), "w", encoding="utf-8") as log:
            log.write(text[:2000])
    except OSError:
        pass  # it is in the pod's log


def main(step):
    os.environ.setdefault("PGCONNECT_TIMEOUT", "15")
    found = stores()
    try:
        check_version()
        for store in found:
            parse(store)
        say(scrub({"preflight": preflight, "migrate": migrate}[step](found), found))
        return 0
    except Exception as error:
        if not isinstance(error, Stop):
            print(scrub(traceback.format_exc(), found), file=sys.stderr, flush=True)
        state = UNCHANGED if all(untouched(s) for s in found) else MAYBE_CHANGED
        text = str(error) if isinstance(error, Stop) else f"{explain(error).rstrip('.')}."
        say(scrub(f"{text} {state}", found))
        return code_of(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
