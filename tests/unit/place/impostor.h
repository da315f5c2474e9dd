/*
 * A relay that is not one: it listens where a relay should, in a directory of the test's own, and
 * holds the key or not. The test says what it serves.
 */
#pragma once

#include "execs.h"
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "wire/conn.h"
#include "wire/hello.h"
#include "wire/loop.h"

#define HOSTILE "hostile"
#define IMPOSTOR_LOOK_MS 5

struct impostor {
	struct execs *t;
	pthread_t thread;
	int listener;
	atomic_bool stop, greeted;
	atomic_int connections;
	uint8_t key[HELLO_KEY_SIZE];
	uint64_t features;
	struct buf recorded; /* a challenge of an earlier hello */
	bool replay;         /* which is said again */
	/* One connection after the other, each until this returns. */
	void (*serve)(struct impostor *);
	struct conn conn;
	int log_fd, old_stderr;
};

static inline bool impostor_next(struct impostor *im, struct frame *frame)
{
	for (int i = 0; i < PATIENCE_MS / IMPOSTOR_LOOK_MS && !atomic_load(&im->stop); i++) {
		struct pollfd p = { .fd = im->conn.fd, .events = POLLIN };
		int r = conn_next(&im->conn, frame, NULL);

		if (r != 0)
			return r > 0;
		if (poll(&p, 1, IMPOSTOR_LOOK_MS) > 0 && conn_fill(&im->conn) < 0)
			return false;
	}
	return false;
}

static inline bool impostor_flush(struct impostor *im)
{
	while (conn_backlog(&im->conn) > 0 && !atomic_load(&im->stop)) {
		struct pollfd p = { .fd = im->conn.fd, .events = POLLOUT };

		if (conn_flush(&im->conn) < 0)
			return false;
		if (conn_backlog(&im->conn) > 0)
			poll(&p, 1, IMPOSTOR_LOOK_MS);
	}
	return !atomic_load(&im->stop);
}

static inline bool impostor_greet(struct impostor *im)
{
	struct hello hello;
	struct frame frame;

	if (!impostor_next(im, &frame) || hello_challenge(&hello, im->key, HOSTILE, im->features,
							  &frame, &im->conn.out, NULL) < 0)
		return false;
	if (im->replay && im->recorded.len > 0) {
		im->conn.out.len = 0;
		buf_append(&im->conn.out, im->recorded.data, im->recorded.len);
	} else {
		buf_reset(&im->recorded);
		buf_append(&im->recorded, im->conn.out.data, im->conn.out.len);
	}
	if (!impostor_flush(im) || !impostor_next(im, &frame) ||
	    hello_verify(&hello, im->key, &frame, NULL) < 0)
		return false;
	wire_encode(&im->conn.out, 0, WIRE_WELCOME,
		    &(struct wire_welcome){ .absence_ms = 60000, .pid = 1 }, NULL);
	im->conn.max_payload = WIRE_PAYLOAD_MAX;
	atomic_store(&im->greeted, true);
	return impostor_flush(im);
}

static inline void *impostor_main(void *arg)
{
	struct impostor *im = arg;

	while (!atomic_load(&im->stop)) {
		struct pollfd p = { .fd = im->listener, .events = POLLIN };
		int fd;

		if (poll(&p, 1, IMPOSTOR_LOOK_MS) <= 0)
			continue;
		fd = accept4(im->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			continue;
		atomic_fetch_add(&im->connections, 1);
		conn_init(&im->conn, fd, WIRE_PAYLOAD_MAX);
		im->serve(im);
		conn_close(&im->conn);
	}
	return NULL;
}

static inline void impostor_start(struct impostor *im)
{
	struct exec_place place = place_with(HOSTILE, 1);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	mkdirat(im->t->dir->fd, "run/places", 0700);
	mkdirat(im->t->dir->fd, "run/places/" HOSTILE, 0700);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/run/places/" HOSTILE "/s",
		 im->t->dir->path);
	im->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(im->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(im->listener, 8), 0);
	assert_int_equal(pthread_create(&im->thread, NULL, impostor_main, im), 0);
	assert_int_equal(places_open(im->t->places, &place, NULL), 0);
}

/* What is logged meanwhile goes to the file `stderr` of the test's directory. */
static inline void impostor_prepare(struct impostor *im, void (*serve)(struct impostor *))
{
	struct exec_place place = place_with(HOSTILE, 1);
	void *t;

	execs_setup(&t);
	im->t = t;
	im->serve = serve;
	memcpy(im->key, place.key, sizeof(im->key));
	im->log_fd =
		openat(im->t->dir->fd, "stderr", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	im->old_stderr = dup(2);
	assert_int_equal(dup2(im->log_fd, 2), 2);
}

static inline int impostor_end(struct impostor *im)
{
	void *t = im->t;

	atomic_store(&im->stop, true);
	pthread_join(im->thread, NULL);
	close(im->listener);
	dup2(im->old_stderr, 2);
	close(im->old_stderr);
	close(im->log_fd);
	buf_free(&im->recorded);
	return execs_teardown(&t);
}
