/*
 * A PostgreSQL database has one server at a time. A second is refused and told of the first, one
 * that comes after it is not, and a server that lost its database to another ends.
 */
#include "store_fixture.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../api/fixture.h"
#include "pg_fixture.h"

SQL(END_CLAIM, "SELECT COUNT(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_locks"
	       " WHERE locktype = 'advisory' AND objid = 4776562) AS ended");

static struct db_options claim_as(const struct store *s, const char *name)
{
	return (struct db_options){ .url = s->url, .claimant = name };
}

static void a_second_server_is_refused_and_told_of_the_first(void **state)
{
	struct store *s = store_of(state);
	struct db_options first = claim_as(s, "node one on here");
	struct db_options second = claim_as(s, "node two on there");
	struct db *one = NULL, *two = NULL;

	assert_done(s, db_open_known(&one, &first, kv_migrations, &s->err));
	assert_refused(s, ERR_LOCKED, db_open_known(&two, &second, kv_migrations, &s->err));
	assert_non_null(strstr(s->err.message, "node one on here"));
	assert_non_null(strstr(s->err.message, "since 2"));
	assert_done(s, db_claim(one, "node one on here", &s->err));
	db_close(one);
	assert_done(s, db_open_known(&two, &second, kv_migrations, &s->err));
	db_close(two);
}

static int end_claim(struct tx *tx, void *arg, struct error *err)
{
	(void)arg;
	return tx_exec(tx, &END_CLAIM, err) < 0 ? -1 : 0;
}

static void a_claim_that_was_cut_off_is_taken_again_unless_another_has_it(void **state)
{
	struct store *s = store_of(state);
	struct db_options first = claim_as(s, "one"), second = claim_as(s, "two");
	struct db *one = NULL, *two = NULL;

	assert_done(s, db_open_known(&one, &first, kv_migrations, &s->err));
	assert_done(s, db_read(s->db, end_claim, NULL, &s->err));
	assert_done(s, db_claim(one, "one", &s->err));
	assert_done(s, db_read(s->db, end_claim, NULL, &s->err));
	assert_done(s, db_open_known(&two, &second, kv_migrations, &s->err));
	assert_refused(s, ERR_LOCKED, db_claim(one, "one", &s->err));
	assert_non_null(strstr(s->err.message, "two"));
	db_close(two);
	assert_done(s, db_claim(one, "one", &s->err));
	db_close(one);
}

static int role_serve(const char *data, const char *url)
{
	_cleanup_error_ struct error err = { 0 };
	struct server_options options = {
		.data_path = data, .database_url = url, .absence_ms = 5000, .beat_ms = 50
	};
	struct server *server = NULL;

	log_set_level(LOG_ERROR_);
	use_built_programs();
	if (server_start(&options, &server, &err) < 0) {
		dprintf(STDERR_FILENO, "%s\n", err.message);
		return err.code == ERR_LOCKED ? 3 : 1;
	}
	server_run(server, &err);
	server_free(server);
	return 0;
}

static pid_t serve(const struct api_test *t, const char *url)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		execl("/proc/self/exe", "one_server", "serve", t->data, url, NULL);
		_exit(127);
	}
	return pid;
}

static bool is_up(const struct api_test *t)
{
	return access(t->socket, F_OK) == 0;
}

static int status_of(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As the whole program does it: refused beside a living one, welcome at once after a killed one. */
static void a_server_is_refused_beside_another_and_comes_back_after_a_kill(void **state)
{
	struct store *s = store_of(state);
	struct api_test one = { 0 }, two = { 0 };
	char *url = pg_fixture_migrated_database();
	pid_t first, again;

	(void)s;
	make_dir(&one);
	make_dir(&two);
	first = serve(&one, url);
	WAIT_FOR(is_up(&one));
	assert_int_equal(status_of(serve(&two, url)), 3);
	kill(first, SIGKILL);
	assert_int_equal(status_of(first), -1);
	unlink(one.socket);
	again = serve(&one, url);
	WAIT_FOR(is_up(&one));
	kill(again, SIGTERM);
	assert_int_equal(status_of(again), 0);
	first = serve(&two, url);
	WAIT_FOR(is_up(&two));
	kill(first, SIGTERM);
	assert_int_equal(status_of(first), 0);
	remove_dir(&one);
	remove_dir(&two);
	free(url);
}

static void a_server_that_lost_its_database_to_another_ends(void **state)
{
	struct store *s = store_of(state);
	struct api_test one = { 0 };
	struct db *thief = NULL, *plain = NULL;
	char *url = pg_fixture_migrated_database();
	struct db_options shared = { .url = url }, claim = { .url = url, .claimant = "thief" };
	pid_t pid;

	make_dir(&one);
	pid = serve(&one, url);
	WAIT_FOR(is_up(&one));
	assert_done(s, db_open(&plain, &shared, &s->err));
	/* Its own connection is cut off until the other one comes in between. */
	while (!thief) {
		assert_done(s, db_read(plain, end_claim, NULL, &s->err));
		error_clear(&s->err);
		db_open(&thief, &claim, &s->err);
	}
	assert_int_equal(status_of(pid), 0);
	db_close(thief);
	db_close(plain);
	remove_dir(&one);
	free(url);
}

int main(int argc, char **argv)
{
	if (argc == 4 && streq(argv[1], "serve"))
		return role_serve(argv[2], argv[3]);

	const struct CMUnitTest tests[] = {
		ON_POSTGRES(a_second_server_is_refused_and_told_of_the_first),
		ON_POSTGRES(a_claim_that_was_cut_off_is_taken_again_unless_another_has_it),
		ON_POSTGRES(a_server_is_refused_beside_another_and_comes_back_after_a_kill),
		ON_POSTGRES(a_server_that_lost_its_database_to_another_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
