#include "pg_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/spawn.h"
#include "db/db.h"

#define START_DEADLINE_MS 30000

static struct {
	pid_t owner; /* the process that cleans up; a forked child does not */
	char *bin;
	char dir[64];
	pid_t server;
	bool shared; /* somebody else's server, see pg_shared.c */
	bool migrated;
	unsigned databases;
} cluster;

static void give_up(const char *what)
{
	fprintf(stderr, "PostgreSQL fixture: %s\n", what);
	exit(1);
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The newest installed one; Debian keeps them side by side outside PATH. */
static char *find_bin(void)
{
	glob_t found;
	char *bin = NULL;
	if (glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0)
		bin = xstrndup(found.gl_pathv[found.gl_pathc - 1],
			       strlen(found.gl_pathv[found.gl_pathc - 1]) - strlen("/postgres"));
	globfree(&found);
	return bin;
}

/*
 * PostgreSQL refuses to run as root. The death signal ends a server whose test program was killed.
 */
static char **as_database_user(void)
{
	char **argv = NULL;
	strv_push(&argv, xstrdup("setpriv"));
	strv_push(&argv, xstrdup("--pdeathsig=QUIT"));
	if (geteuid() == 0) {
		strv_push(&argv, xstrdup("--reuid=postgres"));
		strv_push(&argv, xstrdup("--regid=postgres"));
		strv_push(&argv, xstrdup("--init-groups"));
	}
	strv_push(&argv, xstrdup("--"));
	return argv;
}

static pid_t start_program(const char *program, const char *const *arguments)
{
	char *environment[] = { (char[]){ "PATH=/usr/bin:/bin" }, (char[]){ "LC_ALL=C" }, NULL };
	_cleanup_free_ char *log_path = xasprintf("%s/log", cluster.dir);
	_cleanup_close_ int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	_cleanup_strv_ char **argv = as_database_user();
	strv_push(&argv, xasprintf("%s/%s", cluster.bin, program));
	for (; *arguments; arguments++)
		strv_push(&argv, xstrdup(*arguments));

	struct spawn_spec spec = {
		.argv = argv,
		.envp = environment,
		.cwd = cluster.dir,
		.stdin_fd = -1,
		.stdout_fd = log,
		.stderr_fd = log,
	};
	pid_t pid = -1;
	_cleanup_close_ int pidfd = -1;
	_cleanup_error_ struct error err = { 0 };
	if (spawn(&spec, &pid, &pidfd, &err) < 0)
		give_up(err.message);
	return pid;
}

static void start_server(void)
{
	_cleanup_free_ char *data = xasprintf("%s/data", cluster.dir);
	const char *arguments[] = { "-D", data,
				    "-k", cluster.dir,
				    "-c", "listen_addresses=",
				    "-c", "fsync=off",
				    "-c", "full_page_writes=off",
				    "-c", "wal_level=minimal",
				    "-c", "max_wal_senders=0",
				    "-c", "max_connections=200",
				    "-c", "shared_buffers=16MB",
				    "-c", "autovacuum=off",
				    NULL };
	cluster.server = start_program("postgres", arguments);

	_cleanup_free_ char *url = xasprintf("host=%s user=berth dbname=postgres", cluster.dir);
	int64_t deadline = now_ms() + START_DEADLINE_MS;
	while (PQping(url) != PQPING_OK) {
		if (now_ms() > deadline || waitpid(cluster.server, NULL, WNOHANG) != 0)
			give_up("the server does not come up, see its log");
		nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
	}
}

void pg_fixture_crash(void)
{
	kill(cluster.server, SIGQUIT);
	while (waitpid(cluster.server, NULL, 0) < 0 && errno == EINTR)
		continue;
	cluster.server = 0;
}

void pg_fixture_restart(void)
{
	start_server();
}

/* As the database's owner, one after the other. */
static bool command(const char *text)
{
	_cleanup_free_ char *admin = xasprintf("host=%s user=berth dbname=postgres", cluster.dir);
	PGconn *link = PQconnectdb(admin);
	PGresult *result = PQexec(link, text);
	bool done = PQresultStatus(result) == PGRES_COMMAND_OK;
	if (!done)
		fprintf(stderr, "%s", PQerrorMessage(link));
	PQclear(result);
	PQfinish(link);
	return done;
}

static void drop_databases(void)
{
	for (unsigned i = 1; i <= cluster.databases; i++) {
		_cleanup_free_ char *drop =
			xasprintf("DROP DATABASE IF EXISTS t%d_%u WITH (FORCE)", cluster.owner, i);
		command(drop);
	}
}

static void stop(void)
{
	if (cluster.owner != getpid())
		return;
	if (cluster.shared) {
		drop_databases();
		return;
	}
	if (cluster.server > 0)
		pg_fixture_crash();
	dir_remove_tree(AT_FDCWD, cluster.dir, NULL);
	free(cluster.bin);
}

static void make_cluster(void)
{
	const char *tmp = getenv("TMPDIR");
	/* The socket's path has little room, so a long TMPDIR is not used. */
	if (!tmp || strlen(tmp) > 30)
		tmp = "/tmp";
	snprintf(cluster.dir, sizeof(cluster.dir), "%s/berth-pg-XXXXXX", tmp);
	if (!mkdtemp(cluster.dir))
		give_up("cannot make a temporary directory");
	cluster.owner = getpid();
	atexit(stop);
	if (geteuid() == 0) {
		const struct passwd *user = getpwnam("postgres");
		if (!user || chown(cluster.dir, user->pw_uid, user->pw_gid) < 0)
			give_up("there is no user postgres to run it as");
	}

	_cleanup_free_ char *data = xasprintf("%s/data", cluster.dir);
	const char *arguments[] = { "-D",
				    data,
				    "-U",
				    "berth",
				    "-A",
				    "trust",
				    "--no-sync",
				    "--locale=C.UTF-8",
				    "--encoding=UTF8",
				    "--no-instructions",
				    NULL };
	pid_t pid = start_program("initdb", arguments);
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (status != 0)
		give_up("initdb failed");
}

static void join(const char *dir)
{
	snprintf(cluster.dir, sizeof(cluster.dir), "%s", dir);
	cluster.owner = getpid();
	cluster.shared = cluster.migrated = true;
	atexit(stop);
}

bool pg_fixture_start(void)
{
	if (cluster.server > 0 || cluster.shared)
		return true;
	const char *shared = getenv("BERTH_TEST_POSTGRES");
	if (shared && *shared) {
		join(shared);
		return true;
	}
	cluster.bin = find_bin();
	if (!cluster.bin) {
		if (getenv("BERTH_REQUIRE_POSTGRES"))
			give_up("no /usr/lib/postgresql/*/bin/postgres, and "
				"BERTH_REQUIRE_POSTGRES is set");
		fprintf(stderr, "skipped on PostgreSQL: no /usr/lib/postgresql/*/bin/postgres\n");
		return false;
	}
	make_cluster();
	start_server();
	return true;
}

const char *pg_fixture_dir(void)
{
	return cluster.dir;
}

static char *create_database(const char *name, const char *how)
{
	_cleanup_free_ char *create =
		xasprintf("CREATE DATABASE %s STRATEGY file_copy TEMPLATE %s", name, how);
	if (!command(create))
		give_up("cannot create a database");
	return xasprintf("postgresql://berth@/%s?host=%s", name, cluster.dir);
}

static char *next_database(const char *how)
{
	_cleanup_free_ char *name = xasprintf("t%d_%u", cluster.owner, ++cluster.databases);
	return create_database(name, how);
}

/* Sorted as people do, not as bytes, so that a column without COLLATE "C" shows. */
#define EMPTY "template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'"

char *pg_fixture_new_database(void)
{
	return next_database(EMPTY);
}

static void make_migrated(void)
{
	_cleanup_free_ char *url = create_database("migrated", EMPTY);
	_cleanup_error_ struct error err = { 0 };
	struct db_options options = { .url = url };
	struct db *db = NULL;
	if (db_open(&db, &options, &err) < 0)
		give_up(err.message);
	db_close(db);
	cluster.migrated = true;
}

char *pg_fixture_migrated_database(void)
{
	if (!cluster.migrated)
		make_migrated();
	return next_database("migrated");
}
