/*
 * Keepers that are killed where a place is neither there nor gone. The next one finds what is left
 * by what was written down before, and leaves nothing; then it makes places as any other does.
 */
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "native_fixture.h"
#include "base/fd.h"
#include "wire/place.h"

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

	await_no_files(f);
	while (count_cgroups(f) > 0) {
		if (test_now_ms() > until)
			fail_msg("%zu cgroups are left", count_cgroups(f));
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

static void what_was_moved_out_of_the_way_goes_with_the_next_keeper(void **state)
{
	struct fixture *f = *state;

	keeper_kill(f);
	keeper_restart(f, "keeper.trash.moved:kill");
	have_used(f, "moved");
	peer_ask(&f->peer, WIRE_PLACE_DESTROY, &(struct wire_place_destroy){ .place_id = "moved" });
	await_death(f);
	keeper_restart(f, NULL);
	assert_int_equal(destroy(f, "moved"), WERR_NO_PLACE);
	await_nothing(f);
	works(f, "moved");
	works(f, "moved-other");
}

/* Names in trash/ that tell of a removal that failed. */
static size_t count_stuck(const struct fixture *f)
{
	char pattern[200];
	glob_t found;
	size_t count;

	snprintf(pattern, sizeof(pattern), "%s/" TRASH_NAME "/*" TRASH_STUCK, f->dir);
	if (glob(pattern, 0, NULL, &found) != 0)
		return 0;
	count = found.gl_pathc;
	globfree(&found);
	return count;
}

static void await_stuck(const struct fixture *f)
{
	for (int64_t until = test_now_ms() + CLIENT_WAIT_MS; count_stuck(f) == 0;) {
		assert_true(test_now_ms() < until);
		poll(NULL, 0, 5);
	}
}

static uid_t owner_of_files(const struct fixture *f, const char *id)
{
	char path[200];
	struct stat st;

	snprintf(path, sizeof(path), "%s/places/%s/files", f->dir, id);
	assert_int_equal(stat(path, &st), 0);
	return st.st_uid;
}

static void a_place_whose_files_cannot_be_removed_is_gone_and_keeps_only_its_ids(void **state)
{
	static const char *const faults[] = { "keeper.trash.removing:error",
					      "keeper.trash.removing:kill" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		uid_t before;

		keeper_kill(f);
		keeper_restart(f, faults[i]);
		have_used(f, "stuck");
		before = owner_of_files(f, "stuck");
		assert_int_equal(destroy(f, "stuck"), 0);
		assert_int_equal(destroy(f, "stuck"), WERR_NO_PLACE);
		await_stuck(f);
		have_used(f, "stuck");
		assert_int_equal(owner_of_files(f, "stuck") == before, as_user);
		assert_int_equal(destroy(f, "stuck"), 0);
		keeper_kill(f);
		/* The next one knows whose the files are, too. */
		keeper_restart(f, faults[i]);
		have_used(f, "stuck");
		assert_int_equal(owner_of_files(f, "stuck") == before, as_user);
		assert_int_equal(destroy(f, "stuck"), 0);
		keeper_kill(f);
		keeper_restart(f, NULL);
		await_nothing(f);
	}
	works(f, "stuck");
}

static void a_mount_that_is_left_is_never_entered_and_the_rest_goes_after_it(void **state)
{
	struct fixture *f = *state;
	char path[300];
	glob_t found;

	/* An ordinary user mounts nothing. */
	if (as_user)
		skip();
	have_used(f, "mounted");
	snprintf(path, sizeof(path), "%s/places/mounted/held", f->dir);
	make_directory(path, 0700);
	assert_int_equal(mount("berth-test", path, "tmpfs", 0, NULL), 0);
	snprintf(path, sizeof(path), "%s/places/mounted/held/kept", f->dir);
	make_directory(path, 0700);
	assert_int_equal(destroy(f, "mounted"), 0);
	await_stuck(f);
	snprintf(path, sizeof(path), "%s/" TRASH_NAME "/*" TRASH_STUCK "/held/kept", f->dir);
	assert_int_equal(glob(path, 0, NULL, &found), 0);
	*strrchr(found.gl_pathv[0], '/') = 0;
	assert_int_equal(umount2(found.gl_pathv[0], MNT_DETACH), 0);
	globfree(&found);
	await_nothing(f);
}

/* A full disk may refuse it. */
static void what_cannot_be_moved_is_removed_where_it_is(void **state)
{
	struct wire_sandbox stored = { .store = "kept" };
	struct fixture *f = *state;
	char path[200];

	keeper_kill(f);
	keeper_restart(f, "keeper.trash.moving:error");
	have_used(f, "unmoved");
	assert_int_equal(destroy(f, "unmoved"), 0);
	await_nothing(f);
	have_place(f, "unmoved", &stored);
	run_in(f, "unmoved", "echo mine > ~/mine", NULL);
	assert_int_equal(destroy(f, "unmoved"), 0);
	assert_int_equal(
		peer_call(&f->peer, WIRE_STORE_REMOVE, &(struct wire_store_remove){ "kept" }), 0);
	snprintf(path, sizeof(path), "%s/" STORES_NAME, f->dir);
	assert_int_equal(count_entries(path), 0);
	works(f, "unmoved");
}

static void spares_of_an_earlier_release_go(void **state)
{
	struct fixture *f = *state;
	char path[200];

	keeper_kill(f);
	snprintf(path, sizeof(path), "%s/spares", f->dir);
	make_directory(path, 0700);
	snprintf(path, sizeof(path), "%s/spares/0123456789abcdef", f->dir);
	make_directory(path, 0700);
	keeper_restart(f, NULL);
	snprintf(path, sizeof(path), "%s/spares", f->dir);
	assert_int_equal(access(path, F_OK), -1);
	await_no_files(f);
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
	/* Where none is kept, those of places that are gone are looked at. */
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
		TEST(what_was_moved_out_of_the_way_goes_with_the_next_keeper),
		TEST(a_place_whose_files_cannot_be_removed_is_gone_and_keeps_only_its_ids),
		TEST(a_mount_that_is_left_is_never_entered_and_the_rest_goes_after_it),
		TEST(what_cannot_be_moved_is_removed_where_it_is),
		TEST(spares_of_an_earlier_release_go),
		TEST(a_network_that_was_about_to_be_kept_is_nobodys),
		TEST(a_network_that_was_taken_goes_with_its_keeper),
	};
	int failed;

	/* Where mounts are made they must not be seen outside. */
	if (geteuid() == 0 &&
	    (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
		return 1;
	failed = cmocka_run_group_tests_name("killed", tests, NULL, NULL);
	if (geteuid() == 0) {
		as_user = true;
		failed += cmocka_run_group_tests_name("killed as an ordinary user", tests, NULL,
						      NULL);
	}
	return failed;
}
