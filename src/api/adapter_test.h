/*
 * Trying out an adapter where it would run: a lease of its own, a look for the program, its
 * version. What is found is a list of checks, never an error of the request.
 */
#pragma once

#include "api/server.h"
#include "adapter/adapter.h"

struct adapter_test {
	struct server *server;
	struct request *request;
	const struct adapter *adapter;
	const json_t *config;
	json_t *checks; /* array of {code, level: info|warn|error, message, detail?, hint?} */
};

#define CHECK_LEVELS(X)                                                                            \
	X(CHECK_INFO, "info", "pass")                                                              \
	X(CHECK_WARN, "warn", "warn")                                                              \
	X(CHECK_ERROR, "error", "fail")
enum check_level {
#define X(name, wire, status) name,
	CHECK_LEVELS(X)
#undef X
};

/* detail and hint may be NULL. */
void test_found(struct adapter_test *test, enum check_level level, const char *code,
		const char *detail, const char *hint, const char *message, ...)
	__attribute__((format(printf, 6, 7)));
enum check_level test_worst(const struct adapter_test *test);
/* {adapterType, status: pass|warn|fail, checks, testedAt}; new reference. */
json_t *test_result(const struct adapter_test *test);

/* False when the config alone says that it cannot work. */
bool test_config(struct adapter_test *test);
/* Leases a place of the environment, looks for the tool there, and gives the place back. */
void test_in_place(struct adapter_test *test, const struct environment *environment);
