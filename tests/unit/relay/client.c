#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/id.h"
#include "wire/place.h"

#define PLENTY (8u << 20)

int64_t test_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *relay_program(void)
{
	return getenv("BERTH_RELAY") ? getenv("BERTH_RELAY") : TEST_RELAY;
}

static void nap(void)
{
	struct timespec t = { .tv_nsec = 2000000 };

	nanosleep(&t, NULL);
}

static char process_state(pid_t pid)
{
	char path[32], text[512];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 'X';
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 'X';
	text[n] = 0;
	state = strrchr(text, ')');
	return state ? state[2] : 'X';
}

bool process_lives(pid_t pid)
{
	char state = process_state(pid);

	return state != 'Z' && state != 'X';
}

bool process_stops(pid_t pid)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;

	while (process_state(pid) != 'T' && test_now_ms() < until)
		nap();
	return process_state(pid) == 'T';
}

bool process_is_gone_soon(pid_t pid)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;

	while (process_lives(pid) && test_now_ms() < until)
		nap();
	return !process_lives(pid);
}

static void cgroup_prepare(struct rig *rig)
{
	static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

	for (size_t i = 0; i < ARRAY_SIZE(mounts) && !rig->cgroup[0]; i++) {
		char mark[64];

		snprintf(mark, sizeof(mark), "%s/cgroup.controllers", mounts[i]);
		if (access(mark, F_OK) < 0)
			continue;
		snprintf(rig->cgroup, sizeof(rig->cgroup), "%s/test-%s", mounts[i],
			 strrchr(rig->dir, '/') + 1);
		if (mkdir(rig->cgroup, 0755) < 0)
			rig->cgroup[0] = 0;
	}
}

static void cgroup_discard(const struct rig *rig)
{
	char command_path[200];
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	int fd;

	if (!rig->cgroup[0])
		return;
	snprintf(command_path, sizeof(command_path), "%s/cgroup.kill", rig->cgroup);
	fd = open(command_path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) < 0)
		fail();
	if (fd >= 0)
		close(fd);
	while (test_now_ms() < until) {
		for (unsigned i = 1; i < 600; i++) {
			snprintf(command_path, sizeof(command_path), "%s/e%u", rig->cgroup, i);
			rmdir(command_path);
		}
		if (rmdir(rig->cgroup) == 0 || errno == ENOENT)
			return;
		nap();
	}
	fail_msg("cgroup %s is not empty", rig->cgroup);
}

static int relay_child(const struct rig *rig, const int *fds, size_t count)
{
	const char *program = relay_program();
	int moved[16];

	for (size_t i = 0; i < count; i++)
		moved[i] = fds[i] >= 0 ? fcntl(fds[i], F_DUPFD, 100) : -1;
	for (size_t i = 0; i < count; i++) {
		close(RELAY_FD_LISTEN + (int)i);
		if (moved[i] >= 0)
			dup2(moved[i], RELAY_FD_LISTEN + (int)i);
	}
	close_range(RELAY_FD_END, ~0u, 0);
	(void)rig;
	execle(program, "berth-relay", RIG_PLACE, (char *)NULL, (char *[]){ NULL });
	return 98;
}

static void send_config(const struct rig *rig, const struct rig_options *o, int fd)
{
	_cleanup_buf_ struct buf bytes = { 0 };
	struct wire_relay_config config = {
		.place_id = RIG_PLACE,
		.absence_ms = o->absence_ms ? o->absence_ms : 60000,
		.whole_host = o->whole_host,
		.cwd = rig->root,
		.uid = o->run_as,
		.gid = o->run_as,
		.run_as = o->run_as != 0,
		.ring_max = o->ring_max ? o->ring_max : PLACE_RING_MAX,
		.max_execs = o->max_execs ? o->max_execs : PLACE_EXECS_DEFAULT,
		.open_files = o->open_files,
		.has_cgroup = rig->cgroup[0] != 0,
	};

	memcpy(config.key, rig->key, sizeof(config.key));
	assert_int_equal(wire_encode(&bytes, 0, WIRE_RELAY_CONFIG, &config, NULL), 0);
	assert_int_equal(
		fd_send_with(fd, bytes.data, bytes.len, &o->handed_fd, o->handed_fd > 0, 0),
		bytes.len);
	shutdown(fd, SHUT_WR);
}

static int socket_bind(const struct rig *rig)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/s", rig->dir_fd);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

void rig_start(struct rig *rig, const struct rig_options *options)
{
	static const struct rig_options defaults;
	const struct rig_options *o = options ? options : &defaults;
	int fds[RELAY_FD_END - RELAY_FD_LISTEN], pair[2];
	struct pollfd ready = { .events = POLLIN };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = -1;
	memset(rig, 0, sizeof(*rig));
	snprintf(rig->dir, sizeof(rig->dir), "/tmp/berth-rig-XXXXXX");
	if (!mkdtemp(rig->dir))
		abort();
	snprintf(rig->root, sizeof(rig->root), "%s/root", rig->dir);
	rig->dir_fd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(rig->dir_fd, "root", 0755), 0);
	assert_int_equal(mkdirat(rig->dir_fd, "spool", 0700), 0);
	if (o->run_as) {
		assert_int_equal(chown(rig->root, o->run_as, o->run_as), 0);
		assert_int_equal(chmod(rig->dir, 0711), 0);
	}
	random_bytes(rig->key, sizeof(rig->key));
	if (geteuid() == 0 && !o->no_cgroup)
		cgroup_prepare(rig);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	fds[0] = socket_bind(rig);
	fds[1] = pair[0];
	fds[2] = o->spool_fd > 0 ? fcntl(o->spool_fd, F_DUPFD_CLOEXEC, 3)
				 : openat(rig->dir_fd, "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fds[3] = open(o->whole_host ? "/" : rig->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fds[4] = rig->cgroup[0] ? open(rig->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	send_config(rig, o, pair[1]);
	rig->pid = fork();
	if (rig->pid == 0)
		_exit(relay_child(rig, fds, ARRAY_SIZE(fds)));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	ready.fd = pair[1];
	assert_int_equal(poll(&ready, 1, CLIENT_WAIT_MS), 1);
	close(pair[1]);
}

bool rig_wait_end(struct rig *rig, int *status)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;

	while (test_now_ms() < until) {
		if (waitpid(rig->pid, status, WNOHANG) == rig->pid) {
			rig->pid = 0;
			return true;
		}
		nap();
	}
	return false;
}

void rig_stop(struct rig *rig)
{
	if (rig->pid > 0) {
		kill(rig->pid, SIGKILL);
		waitpid(rig->pid, NULL, 0);
	}
	cgroup_discard(rig);
	close(rig->dir_fd);
	assert_int_equal(dir_remove_tree(AT_FDCWD, rig->dir, NULL), 0);
}

int rig_connect(const struct rig *rig)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/s", rig->dir_fd);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void peer_open_fd(struct peer *p, int fd)
{
	memset(p, 0, sizeof(*p));
	conn_init(&p->conn, fd, WIRE_PAYLOAD_MAX);
}

void peer_close(struct peer *p)
{
	wire_message_clear(&p->m);
	conn_close(&p->conn);
}

static void peer_flush(struct peer *p)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;

	while (conn_backlog(&p->conn) > 0 && conn_flush(&p->conn) == 0 &&
	       conn_backlog(&p->conn) > 0) {
		struct pollfd wait = { .fd = p->conn.fd, .events = POLLOUT };

		assert_true(test_now_ms() < until);
		poll(&wait, 1, 100);
	}
}

void peer_raw(struct peer *p, const void *bytes, size_t len)
{
	buf_append(&p->conn.out, bytes, len);
	peer_flush(p);
}

void peer_say(struct peer *p, uint32_t stream, enum wire_type type, const void *msg)
{
	assert_int_equal(wire_encode(&p->conn.out, stream, type, msg, NULL), 0);
	peer_flush(p);
}

void peer_data(struct peer *p, uint32_t stream, const void *data, size_t len, bool end)
{
	frame_append(&p->conn.out, WIRE_DATA, end ? WIRE_END : 0, stream, data, (uint32_t)len);
	peer_flush(p);
}

uint32_t peer_ask(struct peer *p, enum wire_type type, const void *msg)
{
	peer_say(p, ++p->last_stream, type, msg);
	return p->last_stream;
}

unsigned peer_next(struct peer *p)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	_cleanup_error_ struct error err = { 0 };
	int r;

	wire_message_clear(&p->m);
	while ((r = conn_next(&p->conn, &p->frame, &err)) == 0) {
		struct pollfd wait = { .fd = p->conn.fd, .events = POLLIN };

		if (test_now_ms() > until)
			fail_msg("the relay says nothing");
		if (poll(&wait, 1, 100) > 0 && conn_fill(&p->conn) < 0)
			return 0;
	}
	assert_int_equal(r, 1);
	if (p->frame.type != WIRE_DATA && p->frame.type != WIRE_OUTPUT)
		if (wire_decode(&p->frame, &p->m, &err) < 0)
			fail_msg("%s", err.message);
	if (p->frame.type == WIRE_PING)
		return peer_next(p);
	return p->frame.type;
}

unsigned peer_next_on(struct peer *p, uint32_t stream)
{
	unsigned type;

	do {
		type = peer_next(p);
	} while (type && p->frame.stream != stream);
	return type;
}

uint32_t peer_open(struct peer *p, const struct rig *rig, uint64_t epoch)
{
	struct hello hello;
	unsigned type;
	int fd = rig_connect(rig);

	assert_true(fd >= 0);
	peer_open_fd(p, fd);
	assert_int_equal(hello_offer(&hello, RIG_PLACE, epoch, 0, &p->conn.out, NULL), 0);
	peer_flush(p);
	type = peer_next(p);
	if (type == WIRE_ERROR)
		return p->m.error.code;
	assert_int_equal(hello_answer(&hello, rig->key, &p->frame, &p->conn.out, NULL), 0);
	peer_flush(p);
	type = peer_next(p);
	if (type == WIRE_ERROR)
		return p->m.error.code;
	assert_int_equal(type, WIRE_WELCOME);
	return 0;
}

uint32_t peer_call(struct peer *p, enum wire_type type, const void *msg)
{
	uint32_t stream = peer_ask(p, type, msg);
	unsigned answer = peer_next_on(p, stream);

	assert_int_not_equal(answer, 0);
	return answer == WIRE_ERROR ? p->m.error.code : 0;
}

void outcome_free(struct outcome *o)
{
	buf_free(&o->out);
	buf_free(&o->err);
}

void exec_id_new(uint8_t id[WIRE_ID_SIZE])
{
	random_bytes(id, WIRE_ID_SIZE);
}

struct wire_exec_start exec_shell(const char *const argv[4], const char *script)
{
	struct wire_exec_start start = {
		.argv = { .v = argv, .count = 3 },
		.credit = PLENTY,
	};

	(void)script;
	exec_id_new(start.exec_id);
	return start;
}

static void take_output(struct outcome *o, struct peer *p)
{
	uint64_t offset = get_le64(p->frame.payload);
	uint64_t channel_offset = get_le64(p->frame.payload + 8);
	size_t len = p->frame.length - WIRE_OUTPUT_OVERHEAD;
	struct buf *to = p->frame.flags == WIRE_STDERR ? &o->err : &o->out;

	assert_int_equal(offset, o->next_offset);
	if (o->truncated == 0)
		assert_true(channel_offset >= to->len);
	o->next_offset += len;
	buf_append(to, p->frame.payload + WIRE_OUTPUT_OVERHEAD, len);
	if (!o->acknowledge)
		return;
	peer_say(p, o->stream, WIRE_EXEC_ACK, &(struct wire_exec_ack){ .offset = o->next_offset });
	peer_say(p, o->stream, WIRE_CREDIT, &(struct wire_credit){ .bytes = (uint32_t)len });
}

bool outcome_take(struct outcome *o, struct peer *p)
{
	switch (p->frame.type) {
	case WIRE_EXEC_STARTED:
		o->pid = p->m.exec_started.pid;
		o->existing = p->m.exec_started.existing;
		return true;
	case WIRE_OUTPUT:
		take_output(o, p);
		return true;
	case WIRE_EXEC_STALLED:
		o->stalls += p->m.exec_stalled.stalled;
		return true;
	case WIRE_EXEC_STDIN_CLOSED:
		o->stdin_closed = true;
		return true;
	case WIRE_EXEC_TRUNCATED:
		assert_int_equal(p->m.exec_truncated.from_offset, o->next_offset);
		o->truncated += p->m.exec_truncated.to_offset - o->next_offset;
		o->next_offset = p->m.exec_truncated.to_offset;
		return true;
	case WIRE_EXEC_EXIT:
		o->exited = true;
		o->exit = p->m.exec_exit;
		assert_int_equal(o->exit.end_offset, o->next_offset);
		return false;
	case WIRE_ERROR:
		o->error = p->m.error.code;
		return false;
	default:
		return true;
	}
}

void outcome_start(struct outcome *o, struct peer *p, const struct wire_exec_start *start)
{
	memset(o, 0, sizeof(*o));
	o->acknowledge = true;
	o->stream = peer_ask(p, WIRE_EXEC_START, start);
	assert_int_not_equal(peer_next_on(p, o->stream), 0);
	if (p->frame.type == WIRE_ERROR)
		print_error("it does not start: %s\n", p->m.error.message);
	outcome_take(o, p);
}

void outcome_wait(struct outcome *o, struct peer *p)
{
	if (o->error || o->exited)
		return;
	do {
		assert_int_not_equal(peer_next_on(p, o->stream), 0);
	} while (outcome_take(o, p));
}

void outcome_wait_text(struct outcome *o, struct peer *p, const char *text)
{
	while (!memmem(buf_str(&o->out), o->out.len, text, strlen(text))) {
		assert_int_equal(o->error, 0);
		assert_false(o->exited);
		assert_int_not_equal(peer_next_on(p, o->stream), 0);
		outcome_take(o, p);
	}
}

void outcome_run(struct outcome *o, struct peer *p, const char *script)
{
	struct wire_exec_start start = SHELL(script);

	outcome_start(o, p, &start);
	outcome_wait(o, p);
}
