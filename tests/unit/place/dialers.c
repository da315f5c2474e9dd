/* Places whose relay is reached by another dialer than the keeper of this host. */
#include "execs.h"
#include <errno.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "place/places.h"

#define FAR "far-place"

/*
 * A host far away: connections are carried by a thread, as a bridge would, nothing is handed over,
 * and no file of a relay can be read. It can be cut off.
 */
struct far {
	struct dialer dialer; /* first */
	struct execs *t;
	atomic_bool cut;         /* no connection can be made */
	atomic_bool unreachable; /* nothing can be asked at all */
	atomic_bool lost;        /* it says that the relay is dead */
	atomic_int asked, dialed, freed;
	pthread_mutex_t lock;
	int ends[16]; /* the bridge's ends of what it carries */
	size_t count;
};

struct carried {
	int here, there;
};

static bool copy(int from, int to)
{
	char bytes[4096];
	ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	return n > 0 && fd_write_all(to, bytes, (size_t)n, NULL) == 0;
}

static void *carry(void *arg)
{
	struct carried *c = arg;
	struct pollfd p[2] = { { .fd = c->here, .events = POLLIN },
			       { .fd = c->there, .events = POLLIN } };

	while (poll(p, 2, -1) > 0)
		if ((p[0].revents && !copy(c->here, c->there)) ||
		    (p[1].revents && !copy(c->there, c->here)))
			break;
	shutdown(c->here, SHUT_RDWR);
	close(c->there);
	free(c);
	return NULL;
}

static int far_dial(struct dialer *self, const struct dial *wanted, int64_t deadline,
		    struct dialed *out, struct error *err)
{
	struct far *far = (struct far *)self;
	struct dialer *keeper = keeper_dialer(far->t->places->keeper);
	struct dial plain = *wanted;
	struct carried *c;
	pthread_t thread;
	int pair[2];

	*out = (struct dialed){ .fd = -1 };
	atomic_fetch_add(&far->dialed, 1);
	if (atomic_load(&far->lost))
		return error_set(err, ERR_LEASE_LOST, "the far host was started anew");
	if (atomic_load(&far->cut))
		return error_set(err, ERR_UNAVAILABLE, "the far host does not answer");
	plain.hello = NULL;
	if (keeper->dial(keeper, &plain, deadline, out, err) < 0)
		return -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
			 0);
	c = xcalloc(1, sizeof(*c));
	*c = (struct carried){ pair[1], out->fd };
	pthread_mutex_lock(&far->lock);
	assert_true(far->count < ARRAY_SIZE(far->ends));
	far->ends[far->count++] = pair[1];
	pthread_mutex_unlock(&far->lock);
	assert_int_equal(pthread_create(&thread, NULL, carry, c), 0);
	pthread_detach(thread);
	out->fd = pair[0];
	return 0;
}

static int far_end(struct dialer *self, const char *place_id, enum dial_end what, int64_t deadline,
		   struct error *err)
{
	struct far *far = (struct far *)self;
	struct dialer *keeper = keeper_dialer(far->t->places->keeper);

	return keeper->end(keeper, place_id, what, deadline, err);
}

static int far_get(void *arg, int64_t deadline, struct dialer **out, struct error *err)
{
	struct far *far = arg;

	(void)deadline;
	atomic_fetch_add(&far->asked, 1);
	if (atomic_load(&far->unreachable))
		return error_set(err, ERR_UNAVAILABLE, "the far host cannot be logged in to");
	*out = &far->dialer;
	return 0;
}

static void far_free(void *arg)
{
	struct far *far = arg;

	atomic_fetch_add(&far->freed, 1);
}

static struct dialer_source far_source(struct far *far)
{
	return (struct dialer_source){ far_get, far, far_free };
}

static void far_open(struct far *far, struct execs *t)
{
	struct exec_place place = place_with(FAR, 1);

	*far = (struct far){ .t = t, .dialer = { .dial = far_dial, .end = far_end } };
	pthread_mutex_init(&far->lock, NULL);
	place.dialer = far_source(far);
	assert_int_equal(places_open(t->places, &place, NULL), 0);
}

static void far_cut(struct far *far)
{
	atomic_store(&far->cut, true);
	pthread_mutex_lock(&far->lock);
	for (size_t i = 0; i < far->count; i++)
		shutdown(far->ends[i], SHUT_RDWR);
	pthread_mutex_unlock(&far->lock);
}

static void far_close(struct far *far)
{
	places_stop(far->t->places, FAR, EXEC_CANCELLED, PATIENCE_MS, NULL);
	for (size_t i = 0; i < far->count; i++)
		close(far->ends[i]);
	pthread_mutex_destroy(&far->lock);
}

static void prepare_far(struct execs *t, struct going *g, char *const *argv)
{
	prepare(t, g, argv);
	g->spec.place_id = FAR;
	g->spec.generation = 1;
}

static void a_command_runs_where_only_a_dialer_of_its_own_reaches(void **state)
{
	struct execs *t = *state;
	struct far far;
	struct going g;

	far_open(&far, t);
	prepare_far(t, &g, SHELL_COMMAND("echo here; exit 3"));
	run(t, &g);
	assert_int_equal(g.result.exit_code, 3);
	expect_output(t, &g, RUNLOG_STDOUT, "here\n");
	assert_true(atomic_load(&far.dialed) > 0);
	far_close(&far);
	assert_int_equal(atomic_load(&far.freed), 1);
}

static void a_command_goes_on_while_its_host_is_cut_off(void **state)
{
	struct execs *t = *state;
	struct far far;
	struct going g;
	int before;

	far_open(&far, t);
	prepare_far(t, &g,
		    SHELL_COMMAND("echo one; until [ -e go ]; do sleep 0.05; done; echo two"));
	start_in_thread(t, &g);
	wait_until(runlog_end(g.log) >= 4);
	far_cut(&far);
	before = atomic_load(&far.dialed);
	wait_until(atomic_load(&far.dialed) > before + 2);
	atomic_store(&far.cut, false);
	assert_int_equal(file_replace(t->dir->fd, "go", "", 0, 0600, NULL), 0);
	join(&g);
	assert_int_equal(g.result.exit_code, 0);
	expect_output(t, &g, RUNLOG_STDOUT, "one\ntwo\n");
	far_close(&far);
}

static void a_place_is_ended_although_its_relay_cannot_be_reached(void **state)
{
	struct execs *t = *state;
	struct far far;
	struct going g;
	pid_t pid;

	far_open(&far, t);
	prepare_far(t, &g, SHELL_COMMAND("echo $$ > pid; exec sleep 600"));
	start_in_thread(t, &g);
	wait_until(pid_in(t, "pid") > 0);
	pid = pid_in(t, "pid");
	far_cut(&far);
	assert_int_equal(places_stop(t->places, FAR, EXEC_LEASE_LOST, PATIENCE_MS, NULL), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	wait_until(!is_alive(pid));
	far_close(&far);
}

static void a_place_whose_dialer_cannot_be_had_is_closed_and_ended_later(void **state)
{
	struct execs *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct dialer_source source;
	struct far far;
	struct going g, late;
	pid_t pid;

	far_open(&far, t);
	prepare_far(t, &g, SHELL_COMMAND("echo $$ > pid; exec sleep 600"));
	start_in_thread(t, &g);
	wait_until(pid_in(t, "pid") > 0);
	pid = pid_in(t, "pid");
	atomic_store(&far.unreachable, true);
	far_cut(&far);
	assert_int_equal(places_stop(t->places, FAR, EXEC_LEASE_LOST, 1000, &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	assert_true(is_alive(pid));
	prepare_far(t, &late, COMMAND((char *)"true"));
	expect_refused(t, &late, ERR_LEASE_ENDED);

	atomic_store(&far.unreachable, false);
	source = far_source(&far);
	assert_int_equal(
		places_stop_through(t->places, FAR, &source, EXEC_LEASE_LOST, PATIENCE_MS, NULL),
		0);
	wait_until(!is_alive(pid));
	far_close(&far);
}

static void only_the_word_of_its_dialer_gives_a_place_up(void **state)
{
	struct execs *t = *state;
	struct far far;
	struct going g, refused;

	far_open(&far, t);
	prepare_far(t, &g, SHELL_COMMAND("echo up; exec sleep 600"));
	start_in_thread(t, &g);
	wait_until(runlog_end(g.log) >= 3);
	atomic_store(&far.lost, true);
	far_cut(&far);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	prepare_far(t, &refused, COMMAND((char *)"true"));
	expect_refused(t, &refused, ERR_LEASE_LOST);
	far_close(&far);
}

static void files_and_mounts_of_another_host_are_not_looked_for_here(void **state)
{
	struct execs *t = *state;
	const struct reached_place reached = { .place_id = FAR, .generation = 1 };
	_cleanup_held_execs_ struct held_execs held = { 0 };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_free_ char *path = NULL;
	struct far far;
	struct going g;

	far_open(&far, t);
	prepare_far(t, &g, SHELL_COMMAND("echo up; exec sleep 600"));
	g.spec.note = "{}";
	start_in_thread(t, &g);
	wait_until(runlog_end(g.log) >= 3);
	assert_int_equal(places_recorded_execs(t->places, &reached, &held, NULL), 0);
	assert_int_equal(held.count, 0);
	assert_int_equal(places_workspace_upper(t->places, FAR, 1, &path, &err), -1);
	assert_int_equal(err.code, ERR_UNSUPPORTED_ENV);
	/* Its relay dies over there: how the command ended is in files that are not here. */
	assert_int_equal(kill(relay_pid(t, FAR), SIGKILL), 0);
	join(&g);
	assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	far_close(&far);
}

static void opening_again_brings_the_dialer_of_now(void **state)
{
	struct execs *t = *state;
	struct exec_place place = place_with(FAR, 1);
	struct far before, now;
	struct going g;

	far_open(&before, t);
	now = (struct far){ .t = t, .dialer = before.dialer };
	pthread_mutex_init(&now.lock, NULL);
	place.dialer = far_source(&now);
	assert_int_equal(places_open(t->places, &place, NULL), 0);
	wait_until(atomic_load(&before.freed) == 1);
	prepare_far(t, &g, COMMAND((char *)"true"));
	run(t, &g);
	assert_true(atomic_load(&now.dialed) > 0);
	far_close(&now);
	assert_int_equal(atomic_load(&now.freed), 1);
	pthread_mutex_destroy(&before.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_execs(a_command_runs_where_only_a_dialer_of_its_own_reaches),
		with_execs(a_command_goes_on_while_its_host_is_cut_off),
		with_execs(a_place_is_ended_although_its_relay_cannot_be_reached),
		with_execs(a_place_whose_dialer_cannot_be_had_is_closed_and_ended_later),
		with_execs(only_the_word_of_its_dialer_gives_a_place_up),
		with_execs(files_and_mounts_of_another_host_are_not_looked_for_here),
		with_execs(opening_again_brings_the_dialer_of_now),
	};

	return cmocka_run_group_tests_name("dialers", tests, NULL, NULL);
}
