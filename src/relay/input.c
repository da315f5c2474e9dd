/*
 * Standard input: frames -> buffer -> pipe or terminal. The buffer is bounded by the credit given.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/exec.h"
#include "relay/session.h"

/* Credit is returned in portions, not for every few bytes. */
#define CREDIT_PORTION (16u << 10)
#define TERMINAL_EOF '\004'

static void return_credit(struct exec *exec)
{
	struct session *s = exec->relay->session;

	if (!s || !exec->stream || exec->stdin_owed == 0)
		return;
	if (exec->stdin_owed < CREDIT_PORTION && exec->stdin_credit > CREDIT_PORTION)
		return;
	session_send(s, exec->stream, WIRE_CREDIT,
		     &(struct wire_credit){ .bytes = exec->stdin_owed });
	exec->stdin_credit += exec->stdin_owed;
	exec->stdin_owed = 0;
	session_flush(s);
}

void input_close(struct exec *exec)
{
	loop_unwatch(&exec->relay->loop, &exec->stdin_watch);
	close_fdp(&exec->stdin_fd);
	if (exec->stdin_buf.data)
		wipe(exec->stdin_buf.data, exec->stdin_buf.cap);
	exec->stdin_owed += (uint32_t)exec->stdin_buf.len;
	buf_free(&exec->stdin_buf);
}

/* Nobody will read it any more: what comes is thrown away, and credit flows so that the sender
 * ends. */
static void input_broken(struct exec *exec)
{
	struct session *s = exec->relay->session;

	input_close(exec);
	if (s && exec->stream)
		session_send(s, exec->stream, WIRE_EXEC_STDIN_CLOSED,
			     &(struct wire_exec_stdin_closed){});
	return_credit(exec);
}

static void input_write(struct exec *exec)
{
	struct buf *b = &exec->stdin_buf;

	while (b->len > 0) {
		ssize_t n = write(exec->stdin_fd, b->data, b->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			input_broken(exec);
			return;
		}
		buf_consume(b, (size_t)n);
		exec->stdin_owed += (uint32_t)n;
	}
	return_credit(exec);
	if (b->len == 0) {
		buf_free(b);
		if (exec->stdin_end && !exec->pty)
			input_close(exec);
	}
	loop_change(&exec->relay->loop, &exec->stdin_watch, b->len > 0 ? EPOLLOUT : 0);
}

static void input_ready(struct watch *watch, uint32_t events)
{
	struct exec *exec = container_of(watch, struct exec, stdin_watch);

	if (events & (EPOLLERR | EPOLLHUP) && !exec->pty)
		input_broken(exec);
	else if (events & (EPOLLERR | EPOLLHUP))
		input_close(exec);
	else
		input_write(exec);
}

int input_open(struct exec *exec, int fd, struct error *err)
{
	exec->stdin_fd = fd;
	exec->stdin_watch.ready = input_ready;
	return loop_watch(&exec->relay->loop, &exec->stdin_watch, fd, 0, err);
}

int input_take(struct exec *exec, const uint8_t *data, uint32_t len, bool end)
{
	static const char terminal_eof = TERMINAL_EOF;

	if (len > exec->stdin_credit)
		return -1;
	exec->stdin_credit -= len;
	exec->stdin_offset += len;
	if (exec->stdin_fd < 0 || exec->stdin_end) {
		exec->stdin_owed += len;
		return_credit(exec);
		return 0;
	}
	buf_append(&exec->stdin_buf, data, len);
	/* A terminal has no end; its line discipline makes one of this byte, as a person would. */
	if (end && exec->pty)
		buf_append(&exec->stdin_buf, &terminal_eof, 1);
	exec->stdin_end |= end && !exec->pty;
	input_write(exec);
	return 0;
}
