#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"
#include "keeper/keeper.h"

#define READY_WAIT_MS 10000
#define BACKLOG_LISTEN 16
#define CLONE_INTO_CGROUP_ 0x200000000ull

struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};

static void birth_clear(struct birth *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(b->fd); i++)
		close_fdp(&b->fd[i]);
	close_fdp(&b->log_fd);
	close_fdp(&b->relay_cgroup_fd);
}

bool place_id_is_valid(const char *id)
{
	size_t len = strlen(id);

	if (len == 0 || len > 64 || id[0] == '.' || id[0] == '-')
		return false;
	return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
	       len;
}

static int check_request(const struct wire_place_make *m, struct error *err)
{
	if (!place_id_is_valid(m->place_id))
		return error_set(err, ERR_VALIDATION, "this is no place id");
	if (m->absence_ms < PLACE_ABSENCE_MIN_MS || m->absence_ms > PLACE_ABSENCE_MAX_MS)
		return error_set(err, ERR_VALIDATION, "the absence TTL is out of range");
	if (m->root && m->root[0] && (m->root[0] != '/' || !path_is_clean(m->root)))
		return error_set(err, ERR_VALIDATION, "the root must be a clean absolute path");
	if (m->kind == PLACE_LOCAL && m->root && m->root[0] && strcmp(m->root, "/") != 0)
		return error_set(err, ERR_VALIDATION, "a local place has no root of its own");
	if (m->kind == PLACE_NATIVE && m->root && m->root[0])
		return error_set(err, ERR_VALIDATION, "a native place is described by its sandbox");
	if ((m->kind == PLACE_NATIVE) != (m->sandbox.len > 0))
		return error_set(err, ERR_VALIDATION, "a sandbox belongs to a native place");
	return 0;
}

static int fill_place(struct place *place, const struct wire_place_make *m,
		      struct sandbox_spec *spec, struct error *err)
{
	struct keeper *keeper = place->keeper;
	uint8_t random[8];

	random_bytes(random, sizeof(random));
	hex_encode(place->tag, random, sizeof(random));
	place->kind = m->kind;
	place->absence_ms = m->absence_ms;
	boot_id(place->boot);
	if (keeper->cgroup)
		place->cgroup = xasprintf("%s/%s", keeper->cgroup, place->id);
	place->label = xstrdup(m->label);
	if (m->kind == PLACE_NATIVE)
		return native_fill(place, m, spec, err);
	if (m->kind == PLACE_LOCAL) {
		place->root = xstrdup("/");
	} else if (m->root && m->root[0]) {
		place->root = xstrdup(m->root);
	} else {
		place->root = xasprintf("%s/places/%s/" PLACE_ROOT_NAME, keeper->dir, place->id);
		place->made_root = true;
	}
	return 0;
}

static int make_root(const struct place *place, struct error *err)
{
	if (place->made_root && mkdir(place->root, 0700) < 0)
		return error_errno(err, errno, "making %s", place->root);
	return 0;
}

/* The first connection, if there is one, goes along with the first byte. */
static int send_bytes(struct place *place, int fd, const struct buf *bytes, struct error *err)
{
	bool hands = place->handed_fd >= 0;
	ssize_t n;

	do
		n = fd_send_with(fd, bytes->data, bytes->len, &place->handed_fd, hands,
				 MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return error_errno(err, errno, "sending the config");
	place->handed = hands;
	close_fdp(&place->handed_fd);
	return fd_write_all(fd, bytes->data + n, bytes->len - (size_t)n, err);
}

static int send_config(struct place *place, const struct wire_place_make *m,
		       const struct sandbox_spec *spec, int fd, struct error *err)
{
	bool native = place->kind == PLACE_NATIVE;
	_cleanup_buf_ struct buf bytes = { 0 };
	bool cwd_given = m->cwd && m->cwd[0];
	struct wire_relay_config config = {
		.place_id = m->place_id,
		.absence_ms = m->absence_ms,
		.whole_host = place->kind != PLACE_DIR,
		.cwd = native      ? SANDBOX_WORKSPACE
		       : cwd_given ? m->cwd
				   : place->root,
		.uid = native ? spec->uid : 0,
		.gid = native ? spec->uid : 0,
		.run_as = native && place->range != 0,
		.ring_max = PLACE_RING_MAX,
		.max_execs = PLACE_EXECS_DEFAULT,
		.confine = native,
		.has_cgroup = place->cgroup != NULL,
		.seccomp = native ? spec->seccomp_exec : (struct wire_bytes){ 0 },
		.open_files = native ? spec->open_files : 0,
	};
	int r;

	for (int i = 0; i < LIMITS; i++)
		config.limit_fds += place->limits[i] != NULL;
	memcpy(config.key, m->key, sizeof(config.key));
	r = wire_encode(&bytes, 0, WIRE_RELAY_CONFIG, &config, err);
	wipe(&config, sizeof(config));
	if (r == 0)
		r = send_bytes(place, fd, &bytes, err);
	if (bytes.data)
		wipe(bytes.data, bytes.len);
	if (r == 0 && shutdown(fd, SHUT_WR) < 0)
		r = error_errno(err, errno, "closing the config");
	return r;
}

static int bind_socket(int place_fd, int *out, struct error *err)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (fd < 0)
		return error_errno(err, errno, "making a socket");
	/* Through the descriptor: the path itself may be longer than an address can be. */
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" PLACE_SOCKET_NAME,
		 place_fd);
	/* Whoever connects before the relay is ready waits for it instead of being refused. */
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, BACKLOG_LISTEN) < 0)
		return error_errno(err, errno, "binding the relay's socket");
	*out = steal_fd(&fd);
	return 0;
}

static int open_birth(struct place *place, const struct wire_place_make *m,
		      const struct sandbox_spec *spec, int place_fd, struct birth *b,
		      struct error *err)
{
	int pair[2];

	if (bind_socket(place_fd, &b->fd[0], err) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return error_errno(err, errno, "making the config socket");
	b->fd[RELAY_FD_CONFIG - RELAY_FD_LISTEN] = pair[0];
	place->ready_fd = pair[1];
	if (!place_is_pooled(place) && send_config(place, m, spec, pair[1], err) < 0)
		return -1;
	if (mkdirat(place_fd, PLACE_SPOOL_NAME, 0700) < 0)
		return error_errno(err, errno, "making the spool");
	b->fd[RELAY_FD_SPOOL - RELAY_FD_LISTEN] =
		openat(place_fd, PLACE_SPOOL_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b->log_fd =
		openat(place_fd, PLACE_LOG_NAME, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (place->kind == PLACE_NATIVE)
		return 0;
	b->fd[RELAY_FD_ROOT - RELAY_FD_LISTEN] =
		open(place->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->fd[RELAY_FD_ROOT - RELAY_FD_LISTEN] < 0)
		return error_errno(err, errno, "opening %s", place->root);
	if (place->cgroup) {
		_cleanup_free_ char *relay_cgroup = xasprintf("%s/r", place->cgroup);

		if (cgroup_make(place->cgroup, err) < 0 || cgroup_make(relay_cgroup, err) < 0)
			return -1;
		b->fd[RELAY_FD_CGROUP - RELAY_FD_LISTEN] = cgroup_open(place->cgroup);
		b->relay_cgroup_fd = cgroup_open(relay_cgroup);
	}
	return 0;
}

/* In the child: only system calls from here on. */
int birth_arrange(struct birth *b)
{
	/* Out of the way first: a source may sit on another one's target. */
	for (size_t i = 0; i < ARRAY_SIZE(b->fd); i++)
		if (b->fd[i] >= 0)
			b->fd[i] = fcntl(b->fd[i], F_DUPFD_CLOEXEC, RELAY_FD_END);
	if (b->log_fd >= 0)
		dup2(b->log_fd, 2);
	for (size_t i = 0; i < ARRAY_SIZE(b->fd); i++) {
		close(RELAY_FD_LISTEN + (int)i);
		if (b->fd[i] >= 0 && dup2(b->fd[i], RELAY_FD_LISTEN + (int)i) < 0)
			return -1;
	}
	return 0;
}

void relay_exec(const struct place *place, int image)
{
	char *argv[] = { (char[]){ RELAY_PROGRAM_NAME }, (char *)(uintptr_t)place->id,
			 (char *)(uintptr_t)place->tag, NULL };
	const char *fault = getenv("BERTH_RELAY_FAULT");
	_cleanup_free_ char *given = fault ? xasprintf("BERTH_FAULT=%s", fault) : NULL;
	char *envp[] = { given, NULL };

	if (chdir("/") == 0)
		syscall(SYS_execveat, image, "", argv, envp, AT_EMPTY_PATH);
}

static _Noreturn void become_relay(const struct place *place, struct birth *b)
{
	int image = fcntl(place->keeper->relay_image, F_DUPFD_CLOEXEC, RELAY_FD_END);

	setsid();
	if (birth_arrange(b) == 0)
		relay_exec(place, image);
	_exit(RELAY_EXIT_START);
}

static pid_t clone_relay(int cgroup_fd)
{
	struct clone3_args args = {
		.flags = CLONE_INTO_CGROUP_,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)cgroup_fd,
	};

	return cgroup_fd >= 0 ? (pid_t)syscall(SYS_clone3, &args, sizeof(args)) : fork();
}

bool place_await(struct place *place)
{
	for (;;) {
		char rest[64];
		size_t room = sizeof(place->report) - 1 - place->report_len;
		ssize_t n = recv(place->ready_fd, room ? place->report + place->report_len : rest,
				 room ? room : sizeof(rest), MSG_DONTWAIT);

		if (n > 0 && room)
			place->report_len += (size_t)n;
		if (n <= 0)
			return n == 0 || (errno != EAGAIN && errno != EINTR);
	}
}

/* What its first process said of its walls is written down once. False: it gave up. */
static bool note_walls(struct place *place)
{
	_cleanup_close_ int place_fd = -1;
	char said[REPORT_MAX];
	const char *why;
	uint64_t walls;

	memcpy(said, place->report, sizeof(said));
	walls = sandbox_report_read(said, &why, NULL);
	if (walls == 0 || why)
		return false;
	if (walls == place->walls)
		return true;
	place->walls = walls;
	net_note(place);
	place_hold_mounts(place);
	if (dir_open(place->keeper->places_fd, place->id, &place_fd, NULL) == 0)
		relay_write(place, place_fd, NULL);
	return true;
}

/* Of the config socket nothing more is to be heard. */
static void hear_no_more(struct place *place)
{
	loop_unwatch(&place->keeper->loop, &place->ready);
	close_fdp(&place->ready_fd);
	loop_disarm(&place->keeper->loop, &place->timer);
}

static void relay_ready(struct watch *watch, uint32_t events)
{
	struct place *place = container_of(watch, struct place, ready);

	(void)events;
	if (!place_await(place)) {
		/* Of one in the pool that is all there is to hear until it is taken. */
		if (place->phase == PHASE_POOLED &&
		    memchr(place->report, '\n', place->report_len) && note_walls(place)) {
			place_move(place, PHASE_WARM);
			loop_disarm(&place->keeper->loop, &place->timer);
		}
		return;
	}
	hear_no_more(place);
	if (place->phase != PHASE_MAKING)
		return;
	/* The socket also closes when the relay could not start: its death then follows. */
	if (place->pid == 0 || !process_is(place->pid, place->start_time) ||
	    (place->kind == PLACE_NATIVE && !note_walls(place)))
		return;
	place_move(place, PHASE_ALIVE);
	client_place_ready(place);
	if (place->shape)
		pool_refill(place->shape);
}

static void making_due(struct timer *timer)
{
	struct place *place = container_of(timer, struct place, timer);

	client_place_failed(place, WERR_START, "the relay did not start in time");
	place_destroy(place);
}

static int start_relay(struct place *place, const struct wire_place_make *m,
		       const struct sandbox_spec *spec, int place_fd, struct error *err)
{
	_cleanup_(birth_clear) struct birth b = { .log_fd = -1, .relay_cgroup_fd = -1 };
	pid_t pid;

	for (size_t i = 0; i < ARRAY_SIZE(b.fd); i++)
		b.fd[i] = -1;
	if (make_root(place, err) < 0 || open_birth(place, m, spec, place_fd, &b, err) < 0)
		return -1;
	if (place->kind == PLACE_NATIVE) {
		if (native_start(place, spec, &b, place_fd, &pid, err) < 0)
			return -1;
	} else {
		pid = clone_relay(b.relay_cgroup_fd);
		if (pid == 0)
			become_relay(place, &b);
		if (pid < 0)
			return error_errno(err, errno, "starting the relay");
	}
	place->pid = pid;
	place->start_time = process_start_time(pid);
	if (relay_write(place, place_fd, err) < 0 || FAULT_HERE("keeper.make.started", err) < 0)
		return -1;
	place->ready.ready = relay_ready;
	if (loop_watch(&place->keeper->loop, &place->ready, place->ready_fd, EPOLLIN | EPOLLRDHUP,
		       err) < 0)
		return -1;
	place->timer.due = making_due;
	loop_arm(&place->keeper->loop, &place->timer, READY_WAIT_MS);
	return 0;
}

static int prepare_directory(struct place *place, int *place_fd, struct error *err)
{
	struct keeper *keeper = place->keeper;

	if (mkdirat(keeper->places_fd, place->id, 0700) < 0)
		return error_errno(err, errno, "making the place's directory");
	if (dir_open(keeper->places_fd, place->id, place_fd, err) < 0 ||
	    recipe_write(place, *place_fd, err) < 0)
		return -1;
	if (recipe_is_durable(place) && dir_sync(keeper->places_fd, err) < 0)
		return -1;
	return FAULT_HERE("keeper.make.recipe-written", err);
}

/*
 * A place like it is there already: it only has to be told who it is. `warm`: its walls stand, so
 * it is alive as soon as it has its name.
 */
static int make_of_prepared(struct place *place, bool warm, const struct wire_place_make *m,
			    const struct sandbox_spec *spec, struct error *err)
{
	_cleanup_close_ int place_fd = -1;

	assert(place->phase == PHASE_MAKING);
	if (FAULT_HERE("keeper.pool.taken", err) < 0 ||
	    send_config(place, m, spec, place->ready_fd, err) < 0)
		return -1;
	loop_arm(&place->keeper->loop, &place->timer, READY_WAIT_MS);
	if (FAULT_HERE("keeper.pool.configured", err) < 0 ||
	    pool_rename(place, m->place_id, err) < 0 || FAULT_HERE("keeper.pool.renamed", err) < 0)
		return -1;
	/* With all of its config in hand the relay needs no keeper: the next one may adopt it. */
	if (dir_open(place->keeper->places_fd, place->id, &place_fd, err) < 0 ||
	    recipe_write(place, place_fd, err) < 0)
		return -1;
	/* Its walls stand and its socket is there: who connects is heard when it has read. */
	if (warm) {
		hear_no_more(place);
		place_move(place, PHASE_ALIVE);
		pool_refill(place->shape);
	}
	return 0;
}

static int make_new(struct place *place, const struct wire_place_make *m,
		    const struct sandbox_spec *spec, struct error *err)
{
	_cleanup_close_ int place_fd = -1;

	if (prepare_directory(place, &place_fd, err) < 0)
		return -1;
	return start_relay(place, m, spec, place_fd, err);
}

/* Told apart: the same place without the workspace could be had. */
static void say_unsuited(enum wire_error_code *code, const struct error *err)
{
	if (err->code == ERR_UNPROCESSABLE)
		*code = WERR_UNSUPPORTED;
}

int place_prepare(struct keeper *keeper, const struct wire_place_make *m, struct shape *shape,
		  int *handed, struct place **out, enum wire_error_code *code, struct error *err)
{
	_cleanup_(sandbox_spec_clear) struct sandbox_spec spec = SANDBOX_SPEC_NONE;
	struct place *place = place_new(keeper, m->place_id, shape ? PHASE_POOLED : PHASE_MAKING);
	uint32_t range;

	*code = WERR_INVALID;
	place->shape = shape;
	if (handed)
		place->handed_fd = steal_fd(handed);
	if (fill_place(place, m, &spec, err) < 0) {
		say_unsuited(code, err);
		range = place->range;
		place->range = 0;
		place_free(place);
		native_range_left(keeper, range);
		return -1;
	}
	*code = WERR_START;
	if (!shape && m->kind == PLACE_NATIVE)
		place->shape = pool_shape(keeper, m, &spec);
	if (make_new(place, m, &spec, err) < 0) {
		say_unsuited(code, err);
		/* The recipe undoes what there is by now. */
		place_destroy(place);
		return -1;
	}
	*out = place;
	return 0;
}

static struct place *find_prepared(struct keeper *keeper, const struct wire_place_make *m,
				   struct sandbox_spec *spec, bool *warm)
{
	struct shape *shape;

	if (m->kind != PLACE_NATIVE || m->pool == 0 ||
	    sandbox_spec_read(&m->sandbox, &keeper->policy, spec, NULL) < 0)
		return NULL;
	shape = pool_shape(keeper, m, spec);
	return shape ? pool_take(shape, m, warm) : NULL;
}

int place_make(struct keeper *keeper, const struct wire_place_make *m, int *handed,
	       struct place **out, enum wire_error_code *code, struct error *err)
{
	_cleanup_(sandbox_spec_clear) struct sandbox_spec spec = SANDBOX_SPEC_NONE;

	bool warm;

	*code = WERR_INVALID;
	if (check_request(m, err) < 0)
		return -1;
	*out = find_prepared(keeper, m, &spec, &warm);
	if (!*out)
		return place_prepare(keeper, m, NULL, handed, out, code, err);
	*code = WERR_START;
	(*out)->handed_fd = steal_fd(handed);
	if (make_of_prepared(*out, warm, m, &spec, err) == 0)
		return 0;
	place_destroy(*out);
	return -1;
}
