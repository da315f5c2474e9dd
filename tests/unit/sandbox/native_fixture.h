/* A real keeper in a directory of its own, and native places made by it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <cmocka.h>
#include "../relay/client.h"
#include "wire/walls.h"

/* As root everything also runs as an ordinary user. */
extern bool as_user;
/* Options of a tmpfs that everything of a fixture is on, in a mount namespace of the program's own;
 * NULL: it is wherever /tmp is. */
extern const char *disk;

struct fixture {
	char base[64];    /* what the test may be shown or not */
	char data[80];    /* stands for the data directory */
	char dir[100];    /* the keeper's */
	char shared[100]; /* allowed to be mounted */
	int dir_fd;
	pid_t keeper;
	const char *fault; /* it was started with */
	uint32_t pool;     /* asked for with every place */
	struct peer peer;
	uint8_t key[HELLO_KEY_SIZE];
	uint64_t walls;
	pid_t relay;
	char cgroup[300];
	char refusal[600];
};

void keeper_spawn(struct fixture *f, const char *fault);
void keeper_greet(struct fixture *f);
size_t count_entries(const char *path);
size_t count_ranges(const struct fixture *f);
/* Waits until no place and nothing of places that are gone is left. */
void await_no_files(const struct fixture *f);
void make_directory(const char *path, mode_t mode);
int set_up(void **state);
void keeper_kill(struct fixture *f);
/* The stream its answer comes on. */
uint32_t ask_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox);
uint32_t make_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox);
void have_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox);
void enter(struct fixture *f, const char *id, struct peer *p);
uint32_t destroy(struct fixture *f, const char *id);
int tear_down(void **state);
const char *run_in(struct fixture *f, const char *id, const char *script, int *status);
void has(const char *text, const char *wanted);
void lacks(const char *text, const char *unwanted);
int socket_connect(int dir_fd, const char *name);
