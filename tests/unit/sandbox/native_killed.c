/*
 * Keepers that are killed where a place is neither there nor gone. The next one finds what is left
 * by what was written down before, and leaves nothing; then it makes places as any other does.
 */
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "native_fixture.h"
#include "base/fd.h"

static const struct wire_sandbox plain;
static const struct wire_sandbox limited = { .memory_bytes = 64 << 20, .pids = 24 };

/* An ordinary user has no controllers to limit anything with. */
static const struct wire_sandbox *wanted(void)
{
	return as_user ? &plain : &limited;
}

static void keeper_restart(struct fixture *f, const char *fault)
{
	keeper_spawn(f, fault);
	keeper_greet(f);
}

/* The keeper met its fault point. */
static void await_death(struct fixture *f)
{
	int status;

	while (peer_next(&f->peer) != 0)
		;
	assert_int_equal(waitpid(f->keeper, &status, 0), f->keeper);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	peer_close(&f->peer);
}

/* Of the keeper's places, in the v2 tree and those of the controllers, wherever we are in them. */
static size_t count_cgroups(const struct fixture *f)
{
	static const char *const depths[] = { "", "/*", "/*/*", "/*/*/*" };
	const char *base = strstr(f->cgroup, "/berth-");
	size_t count = 0;

	for (size_t i = 0; base && i < ARRAY_SIZE(depths); i++) {
		char pattern[400];
		glob_t found;

		snprintf(pattern, sizeof(pattern), "/sys/fs/cgroup%s%.*s/*/", depths[i],
			 (int)strcspn(base + 1, "/") + 1, base);
		if (glob(pattern, GLOB_ONLYDIR, NULL, &found) != 0)
			continue;
		count += found.gl_pathc;
		globfree(&found);
	}
	return count;
}

static bool has_mounts(const struct fixture *f)
{
	_cleanup_buf_ struct buf text = { 0 };

	assert_int_equal(file_read(AT_FDCWD, "/proc/self/mountinfo", &text, 1 << 20, NULL), 0);
	return strstr(buf_str(&text), f->base) != NULL;
}

/* A keeper that ends in peace then gives all uid ranges back: tear_down counts them. */
static void await_nothing(struct fixture *f)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	char path[200];

	snprintf(path, sizeof(path), "%s/places", f->dir);
	while (count_entries(path) > 0 || count_cgroups(f) > 0) {
		if (test_now_ms() > until)
			fail_msg("%zu places, %zu cgroups are left", count_entries(path),
				 count_cgroups(f));
		poll(NULL, 0, 5);
	}
	assert_false(has_mounts(f));
	assert_false(process_lives(f->relay));
}

static void works(struct fixture *f, const char *id)
{
	have_place(f, id, wanted());
	has(run_in(f, id, "ls -A /tmp /workspace; echo works", NULL),
	    "/tmp:\n\n/workspace:\nworks\n");
	assert_int_equal(destroy(f, id), 0);
}

/* One that has run something: its exits are what a keeper would keep a dead place for. */
static void have_used(struct fixture *f, const char *id)
{
	have_place(f, id, wanted());
	has(run_in(f, id, "echo used", NULL), "used");
	if (!as_user)
		assert_true(count_cgroups(f) > 0);
}

static void what_was_told_to_be_gone_goes_with_the_next_keeper(void **state)
{
	struct fixture *f = *state;

	keeper_kill(f);
	keeper_restart(f, "keeper.destroy.told:kill");
	have_used(f, "told");
	assert_int_equal(destroy(f, "told"), 0);
	await_death(f);
	keeper_restart(f, NULL);
	await_nothing(f);
	assert_int_equal(destroy(f, "told"), WERR_NO_PLACE);
	works(f, "told");
	works(f, "told-other");
}

static void a_network_that_was_about_to_be_kept_is_nobodys(void **state)
{
	struct fixture *f = *state;

	/* An ordinary user keeps none. */
	if (as_user)
		skip();
	keeper_kill(f);
	keeper_restart(f, "keeper.net.keeping:kill");
	have_used(f, "kept");
	assert_int_equal(destroy(f, "kept"), 0);
	await_death(f);
	keeper_restart(f, NULL);
	await_nothing(f);
	works(f, "kept");
}

static void a_network_that_was_taken_goes_with_its_keeper(void **state)
{
	struct fixture *f = *state;

	if (as_user)
		skip();
	keeper_kill(f);
	keeper_restart(f, "keeper.net.taken:kill");
	have_used(f, "taken");
	assert_int_equal(destroy(f, "taken"), 0);
	/* Asked for by the same name it is tidied up first, so that there is one to take. */
	ask_place(f, "taken", wanted());
	await_death(f);
	keeper_restart(f, NULL);
	await_nothing(f);
	works(f, "taken");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_told_to_be_gone_goes_with_the_next_keeper),
		TEST(a_network_that_was_about_to_be_kept_is_nobodys),
		TEST(a_network_that_was_taken_goes_with_its_keeper),
	};
	int failed = cmocka_run_group_tests_name("killed", tests, NULL, NULL);

	if (geteuid() == 0) {
		as_user = true;
		failed += cmocka_run_group_tests_name("killed as an ordinary user", tests, NULL,
						      NULL);
	}
	return failed;
}
