#include "git_fixture.h"
#include <pthread.h>
#include <sys/timerfd.h>
#include "git/cli.h"

static void find_repo(struct git_fixture *f, int root, int cancel_fd, struct git_repo *repo)
{
	assert_ok(f, git_repo_find(root, f->host, cancel_fd, repo, &f->err));
}

/* Readable after so long. */
static int alarm_after(long ms)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct itimerspec when = { .it_value = { ms / 1000, ms % 1000 * 1000000L } };

	assert_true(fd >= 0);
	assert_int_equal(timerfd_settime(fd, 0, &when, NULL), 0);
	return fd;
}

static void git_says_what_it_died_of(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host);
	_cleanup_repo_ struct git_repo repo = { 0 };
	struct git_call call = { .repo = &repo, .args = GIT_ARGS("cat-file", "-t", "nothing") };
	int status = 0;

	find_repo(f, root, -1, &repo);
	assert_int_equal(git_run(&call, NULL, NULL, &f->err), -1);
	assert_int_equal(f->err.code, ERR_UNPROCESSABLE);
	assert_non_null(strstr(f->err.message, "Not a valid object name nothing"));
	assert_ok(f, git_run(&call, NULL, &status, &f->err));
	assert_int_equal(status, 128);
}

static void nothing_of_our_environment_counts(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host);
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	struct git_call call = { .repo = &repo, .args = GIT_ARGS("config", "--list") };

	find_repo(f, root, -1, &repo);
	setenv("GIT_DIR", "/nonexistent", 1);
	setenv("GIT_CONFIG_COUNT", "1", 1);
	setenv("GIT_CONFIG_KEY_0", "inherited.setting", 1);
	setenv("GIT_CONFIG_VALUE_0", "yes", 1);
	assert_ok(f, git_run(&call, &out, NULL, &f->err));
	unsetenv("GIT_DIR");
	unsetenv("GIT_CONFIG_COUNT");
	assert_null(strstr(out.data, "inherited.setting"));
	assert_non_null(strstr(out.data, "core.hookspath=/dev/null"));
}

static void too_many_words_are_cut_off(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host);
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	struct git_call call = {
		.repo = &repo,
		.args = GIT_ARGS("cat-file", "blob", "HEAD:a"),
		.max_output = 100000,
	};

	SH(f->host, "head -c 10M /dev/zero >a; git add a; git commit -qm big");
	find_repo(f, root, -1, &repo);
	assert_int_equal(git_run(&call, &out, NULL, &f->err), -1);
	assert_int_equal(f->err.code, ERR_TOO_LARGE);
	assert_true(out.len <= 100000);
}

/* It waits for input that does not come. */
static void waiting_has_an_end(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host), cancel = alarm_after(100);
	_cleanup_repo_ struct git_repo repo = { 0 };
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);

	struct git_call call = {
		.repo = &repo,
		.args = GIT_ARGS("cat-file", "--batch"),
		.input_fd = fds[0],
		.timeout_ms = 50,
	};

	find_repo(f, root, -1, &repo);
	assert_int_equal(git_run(&call, NULL, NULL, &f->err), -1);
	assert_int_equal(f->err.code, ERR_TIMEOUT);
	call.timeout_ms = 0;
	repo.cancel_fd = cancel;
	assert_int_equal(git_run(&call, NULL, NULL, &f->err), -1);
	assert_int_equal(f->err.code, ERR_CANCELLED);
	close(fds[0]);
	close(fds[1]);
}

struct running {
	const struct git_repo *repo;
	int in[2], out[2];
	int rc;
	pthread_t thread;
};

static void *run_until_fed(void *arg)
{
	struct running *r = arg;
	struct git_call call = {
		.repo = r->repo,
		.args = GIT_ARGS("cat-file", "--batch-check"),
		.input_fd = r->in[0],
		.output_fd = r->out[1],
	};

	r->rc = git_run(&call, NULL, NULL, NULL);
	return NULL;
}

static void a_fifth_git_waits_for_its_turn(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host), cancel = -1;
	_cleanup_repo_ struct git_repo repo = { 0 };
	struct running four[4] = { 0 };
	char answer[64];

	find_repo(f, root, -1, &repo);
	for (size_t i = 0; i < ARRAY_SIZE(four); i++) {
		four[i].repo = &repo;
		assert_int_equal(pipe2(four[i].in, O_CLOEXEC), 0);
		assert_int_equal(pipe2(four[i].out, O_CLOEXEC), 0);
		assert_int_equal(pthread_create(&four[i].thread, NULL, run_until_fed, &four[i]), 0);
		/* An answer says that it runs. */
		assert_int_equal(write(four[i].in[1], "HEAD\n", 5), 5);
		assert_true(read(four[i].out[0], answer, sizeof(answer)) > 0);
	}

	struct git_repo impatient = repo;
	struct git_call fifth = { .repo = &impatient, .args = GIT_ARGS("version") };

	cancel = alarm_after(300);
	impatient.cancel_fd = cancel;
	assert_int_equal(git_run(&fifth, NULL, NULL, &f->err), -1);
	assert_string_equal(f->err.message, "cancelled before git version");
	for (size_t i = 0; i < ARRAY_SIZE(four); i++) {
		close(four[i].in[1]);
		assert_int_equal(pthread_join(four[i].thread, NULL), 0);
		assert_int_equal(four[i].rc, 0);
		close(four[i].in[0]);
		close(four[i].out[0]);
		close(four[i].out[1]);
	}
	impatient.cancel_fd = -1;
	assert_ok(f, git_run(&fifth, NULL, NULL, &f->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GIT_TEST(git_says_what_it_died_of),
		GIT_TEST(nothing_of_our_environment_counts),
		GIT_TEST(too_many_words_are_cut_off),
		GIT_TEST(waiting_has_an_end),
		GIT_TEST(a_fifth_git_waits_for_its_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
