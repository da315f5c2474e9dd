#include "relay/file_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/background.h"
#include "relay/file_tree_work.h"
#include "wire/place.h"

#define TREES_MAX 8
#define STRETCH_MAX (64u << 10)
#define CREDIT_PORTION (WIRE_TREE_CREDIT / 8)
#define PIPE_SIZE (1 << 20)

struct file_tree {
	struct file_tree *next;
	struct session *session; /* NULL: it has ended, only the child's end is waited for */
	struct relay *relay;
	uint32_t stream;
	struct background aside;
	bool writes; /* is to clean up after itself: not killed */
	bool reaped;
	int failure; /* what the child ended with */

	struct watch in_watch; /* to the child */
	int in_fd;
	struct buf waiting; /* what the pipe has not taken */
	size_t waiting_pos;
	bool in_ended;
	uint64_t in_credit;
	uint32_t owed;

	struct watch out_watch; /* from the child */
	int out_fd;
	uint64_t out_credit;
};

/* The child */

struct child {
	struct tree_job job;
	int (*work)(struct tree_job *);
	pid_t parent;
};

/* Only the root of the place, the two pipes and stderr are of use there. */
static void keep_few(struct tree_job *job)
{
	int kept[] = { RELAY_FD_ROOT, job->in_fd, job->out_fd };
	int from = STDERR_FILENO + 1;

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		for (size_t j = i + 1; j < ARRAY_SIZE(kept); j++)
			if (kept[j] < kept[i]) {
				int other = kept[i];

				kept[i] = kept[j];
				kept[j] = other;
			}
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (kept[i] > from)
			syscall(SYS_close_range, (unsigned)from, (unsigned)kept[i] - 1, 0);
		from = kept[i] + 1;
	}
	syscall(SYS_close_range, (unsigned)from, ~0u, 0);
}

static int child_main(void *arg)
{
	struct child *child = arg;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* It may have died before it could be asked for. */
	if (getppid() != child->parent)
		return ECHILD;
	keep_few(&child->job);
	/* Modes are said in full. */
	umask(0);
	user_files_enter(&child->job.relay->config.payload);
	return child->work(&child->job);
}

/* The loop's side */

static struct file_tree *tree_find(struct session *s, uint32_t stream)
{
	for (struct file_tree *t = s->trees; t; t = t->next)
		if (t->stream == stream)
			return t;
	return NULL;
}

static void close_input(struct file_tree *t)
{
	loop_unwatch(&t->relay->loop, &t->in_watch);
	close_fdp(&t->in_fd);
	buf_free(&t->waiting);
	t->waiting_pos = 0;
}

static void close_output(struct file_tree *t)
{
	loop_unwatch(&t->relay->loop, &t->out_watch);
	close_fdp(&t->out_fd);
}

static void tree_leave(struct file_tree *t)
{
	for (struct file_tree **p = &t->session->trees; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->session->conn.bulk = t->session->trees != NULL;
	t->session = NULL;
}

/* Both ends closed, a child that writes ends as soon as it has cleaned up. */
static void tree_give_up(struct file_tree *t)
{
	tree_leave(t);
	close_input(t);
	close_output(t);
	if (!t->reaped && !t->writes)
		kill(t->aside.pid, SIGKILL);
	if (t->reaped)
		free(t);
}

/* The end is told when the child has said everything and how it ended is known. */
static void tree_advance(struct file_tree *t)
{
	struct session *s = t->session;

	if (t->out_fd >= 0 || !t->reaped)
		return;
	if (t->failure)
		session_refuse(s, t->stream, WERR_IO, t->failure, "the tree's process ended: %s",
			       strerror(t->failure));
	else
		frame_append(&s->conn.out, WIRE_DATA, WIRE_END, t->stream, NULL, 0);
	tree_give_up(t);
}

static void child_ended(struct background *aside, int errnum)
{
	struct file_tree *t = container_of(aside, struct file_tree, aside);
	struct session *s = t->session;

	t->reaped = true;
	t->failure = errnum;
	if (!s) {
		free(t);
		return;
	}
	tree_advance(t);
	session_pump(s);
	session_flush(s);
}

/* A pipe whose other end is closed would wake the loop for ever: it is out of it while paused. */
static void listen_to_child(struct file_tree *t)
{
	struct loop *loop = &t->relay->loop;

	if (t->out_fd < 0 || t->out_credit == 0 || !session_has_room(t->session))
		loop_unwatch(loop, &t->out_watch);
	else if (t->out_watch.fd < 0 &&
		 loop_watch(loop, &t->out_watch, t->out_fd, EPOLLIN, NULL) < 0)
		close_output(t);
}

/* One DATA frame, read straight to where it is sent from. */
static bool pump_one(struct file_tree *t)
{
	struct session *s = t->session;
	struct buf *out = &s->conn.out;
	size_t start = out->len, max = (size_t)MIN_OF((uint64_t)STRETCH_MAX, t->out_credit);
	ssize_t n;

	if (t->out_fd < 0 || max == 0)
		return false;
	buf_reserve(out, WIRE_HEADER_SIZE + max);
	frame_begin(out, WIRE_DATA, 0, t->stream, 0);
	n = read(t->out_fd, out->data + out->len, max);
	if (n <= 0) {
		out->len = start;
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		close_output(t);
		tree_advance(t);
		return true;
	}
	out->len += (size_t)n;
	frame_amend(out, start, 0);
	t->out_credit -= (uint64_t)n;
	return true;
}

bool file_tree_pump(struct session *s)
{
	bool progress = false;

	for (struct file_tree *t = s->trees, *next; t && session_has_room(s); t = next) {
		next = t->next;
		progress |= pump_one(t);
	}
	return progress;
}

void file_tree_resume(struct session *s)
{
	for (struct file_tree *t = s->trees; t; t = t->next)
		listen_to_child(t);
}

static void out_ready(struct watch *watch, uint32_t events)
{
	struct session *s = container_of(watch, struct file_tree, out_watch)->session;

	(void)events;
	session_pump(s);
	/* Without room nothing was done, and the loop is not to ask again before there is some. */
	session_flush(s);
}

/* Whoever does not read any more has failed and said why. */
static void input_lost(struct file_tree *t)
{
	close_input(t);
	t->in_ended = true;
}

static void input_taken(struct file_tree *t, size_t bytes)
{
	t->owed += (uint32_t)bytes;
	if (t->owed < CREDIT_PORTION || t->in_ended)
		return;
	session_send(t->session, t->stream, WIRE_CREDIT, &(struct wire_credit){ .bytes = t->owed });
	t->in_credit += t->owed;
	t->owed = 0;
}

/* How much the pipe took; -1 when nobody reads it. */
static ssize_t feed(struct file_tree *t, const void *data, size_t len)
{
	ssize_t n = len > 0 ? write(t->in_fd, data, len) : 0;

	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static void in_ready(struct watch *watch, uint32_t events)
{
	struct file_tree *t = container_of(watch, struct file_tree, in_watch);
	ssize_t n = feed(t, t->waiting.data + t->waiting_pos, t->waiting.len - t->waiting_pos);

	(void)events;
	if (n < 0) {
		input_lost(t);
		return;
	}
	t->waiting_pos += (size_t)n;
	if (t->waiting_pos == t->waiting.len) {
		loop_unwatch(&t->relay->loop, &t->in_watch);
		buf_reset(&t->waiting);
		t->waiting_pos = 0;
		if (t->in_ended)
			close_input(t);
	}
	input_taken(t, (size_t)n);
	session_flush(t->session);
}

static void input_take(struct file_tree *t, const uint8_t *data, size_t len)
{
	size_t done = 0;
	ssize_t n = 0;

	if (t->waiting.len == 0) {
		n = feed(t, data, len);
		done = (size_t)MAX_OF(n, 0);
	}
	if (n < 0) {
		input_lost(t);
		return;
	}
	input_taken(t, done);
	if (done == len)
		return;
	/* Sent bytes are dropped when they are most of it: the buffer stays below twice the credit.
	 */
	if (t->waiting_pos > t->waiting.len / 2) {
		buf_consume(&t->waiting, t->waiting_pos);
		t->waiting_pos = 0;
	}
	buf_append(&t->waiting, data + done, len - done);
	if (t->in_watch.fd < 0 &&
	    loop_watch(&t->relay->loop, &t->in_watch, t->in_fd, EPOLLOUT, NULL) < 0)
		input_lost(t);
}

bool file_tree_data(struct session *s, uint32_t stream, const uint8_t *data, uint32_t len, bool end)
{
	struct file_tree *t = tree_find(s, stream);

	if (!t)
		return false;
	if (len > t->in_credit || (t->in_ended && t->in_fd >= 0)) {
		session_reject(s, WERR_PROTOCOL, "records on stream %u that were not asked for",
			       (unsigned)stream);
		return true;
	}
	t->in_credit -= len;
	if (t->in_fd < 0)
		return true;
	input_take(t, data, len);
	if (end && t->in_fd >= 0) {
		t->in_ended = true;
		if (t->waiting.len == 0)
			close_input(t);
	}
	return true;
}

bool file_tree_pass(struct session *s)
{
	struct conn *c = &s->conn;
	struct file_tree *t = conn_may_pass(c) ? tree_find(s, c->part.stream) : NULL;
	ssize_t n;

	if (!t || t->in_fd < 0 || t->in_ended || t->waiting.len > 0 || c->rest > t->in_credit ||
	    (c->part.flags & ~WIRE_END))
		return false;
	n = splice(c->fd, NULL, t->in_fd, NULL, c->rest, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n <= 0)
		return false;
	conn_passed(c, (size_t)n);
	t->in_credit -= (uint64_t)n;
	input_taken(t, (size_t)n);
	if (c->rest == 0 && (c->part.flags & WIRE_END))
		file_tree_data(s, t->stream, NULL, 0, true);
	return true;
}

bool file_tree_credit(struct session *s, uint32_t stream, uint32_t bytes)
{
	struct file_tree *t = tree_find(s, stream);

	if (!t)
		return false;
	if (t->out_credit + bytes > WIRE_CREDIT_MAX) {
		session_reject(s, WERR_PROTOCOL, "too much credit on stream %u", (unsigned)stream);
		return true;
	}
	t->out_credit += bytes;
	session_pump(s);
	return true;
}

bool file_tree_reset(struct session *s, uint32_t stream)
{
	struct file_tree *t = tree_find(s, stream);

	if (t)
		tree_give_up(t);
	return t != NULL;
}

void file_tree_detach(struct session *s)
{
	while (s->trees)
		tree_give_up(s->trees);
}

static int open_pipe(int ends[2], int ours)
{
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	fcntl(ends[ours], F_SETFL, O_NONBLOCK);
	/* More is better and less is enough. */
	fcntl(ends[ours], F_SETPIPE_SZ, PIPE_SIZE);
	return 0;
}

static int start_child(struct file_tree *t, const struct wire_message *m,
		       int (*work)(struct tree_job *))
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 };
	struct child child = {
		.job = { .relay = t->relay, .request = m },
		.work = work,
		.parent = getpid(),
	};
	int r = open_pipe(in, 1);

	if (r == 0)
		r = open_pipe(out, 0);
	child.job.in_fd = in[0];
	child.job.out_fd = out[1];
	t->aside.done = child_ended;
	if (r == 0 && background_start(t->relay, &t->aside, child_main, &child) < 0)
		r = -errno;
	close_fdp(&in[0]);
	close_fdp(&out[1]);
	t->in_fd = in[1];
	t->out_fd = out[0];
	return r;
}

static void start(struct session *s, const struct wire_message *m, uint32_t credit, bool writes,
		  int (*work)(struct tree_job *))
{
	struct file_tree *t;
	size_t count = 0;
	int r;

	for (t = s->trees; t; t = t->next)
		count++;
	if (count >= TREES_MAX) {
		session_refuse(s, m->stream, WERR_TOO_MANY, 0, "%zu trees are on their way already",
			       count);
		return;
	}
	t = xcalloc(1, sizeof(*t));
	t->session = s;
	t->relay = s->relay;
	t->stream = m->stream;
	t->writes = writes;
	t->in_watch = (struct watch){ .fd = -1, .ready = in_ready };
	t->out_watch = (struct watch){ .fd = -1, .ready = out_ready };
	t->in_credit = WIRE_TREE_CREDIT;
	t->out_credit = credit;
	t->next = s->trees;
	s->trees = t;
	s->conn.bulk = true;
	r = start_child(t, m, work);
	if (r < 0) {
		session_refuse(s, m->stream, WERR_IO, -r, "the tree's process: %s", strerror(-r));
		t->reaped = true;
		tree_give_up(t);
		return;
	}
	listen_to_child(t);
}

void file_tree_scan(struct session *s, const struct wire_message *m)
{
	start(s, m, m->tree_scan.credit, false, tree_scan_work);
}

void file_tree_hash(struct session *s, const struct wire_message *m)
{
	start(s, m, m->tree_hash.credit, false, tree_hash_work);
}

void file_tree_put(struct session *s, const struct wire_message *m)
{
	start(s, m, m->tree_put.credit, true, tree_put_work);
}

void file_tree_get(struct session *s, const struct wire_message *m)
{
	start(s, m, m->tree_get.credit, false, tree_get_work);
}
