/*
 * A host for providers in a directory of its own, with the real clock and a real places. Opening
 * it again is a restart of the server.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/text.h"
#include "driver/provider.h"
#include "../open_places.h"

#define LEASE_1 "11111111-1111-4111-8111-111111111111"
#define LEASE_2 "22222222-2222-4222-8222-222222222222"
#define RUN_1 "aaaaaaaa-1111-4111-8111-111111111111"
#define RUN_2 "bbbbbbbb-2222-4222-8222-222222222222"
#define ENV_1 "eeeeeeee-1111-4111-8111-111111111111"
#define PLACE_1 "cccccccc-1111-4111-8111-111111111111"

struct places {
	char dir[64];
	int dirfd;
	bool allow_fake;
	struct clock clock;
	struct clock *given_clock; /* instead of the real one, from the next start */
	struct places *places;
	struct provider_host *providers;
};

static inline void places_start(struct places *p)
{
	struct provider_host_options options = {
		.state_dirfd = p->dirfd,
		.state_path = p->dir,
		.allow_fake = p->allow_fake,
		.clock = p->given_clock ? p->given_clock : &p->clock,
		.places = p->places,
	};

	assert_int_equal(provider_host_new(&options, &p->providers, NULL), 0);
}

static inline void places_restart(struct places *p)
{
	provider_host_free(p->providers);
	places_start(p);
}

static inline int places_setup_with(void **state, bool allow_fake)
{
	struct places *p = xcalloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/tmp/berth-places.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	assert_int_equal(dir_open(AT_FDCWD, p->dir, &p->dirfd, NULL), 0);
	p->allow_fake = allow_fake;
	clock_init_system(&p->clock);
	assert_int_equal(test_places_new(&p->clock, "test-places", 1, p->dir, &p->places, NULL), 0);
	places_start(p);
	*state = p;
	return 0;
}

static inline int places_setup(void **state)
{
	return places_setup_with(state, true);
}

static inline int places_teardown(void **state)
{
	struct places *p = *state;

	provider_host_free(p->providers);
	places_free(p->places);
	end_keeper(p->dir);
	close_fdp(&p->dirfd);
	dir_remove_tree(AT_FDCWD, p->dir, NULL);
	free(p);
	return 0;
}

static inline json_t *J(const char *text)
{
	_cleanup_error_ struct error err = { 0 };
	json_t *value = json_parse(text, strlen(text), &err);

	if (!value)
		fail_msg("%s: %s", err.message, text);
	return value;
}

/* Equal by structure, and shown when not. */
static inline void assert_json(const json_t *value, const char *expected)
{
	_cleanup_json_ json_t *want = J(expected);
	_cleanup_free_ char *got = json_canonical(value), *text = json_canonical(want);

	if (!json_equal(value, want))
		assert_string_equal(got, text);
}

static inline void assert_says(const struct error *err, enum error_code code, const char *part)
{
	assert_string_equal(error_code_name(err->code), error_code_name(code));
	if (!strstr(err->message, part))
		fail_msg("\"%s\" does not say \"%s\"", err->message, part);
}

static inline bool path_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

#define places_test(f) cmocka_unit_test_setup_teardown(f, places_setup, places_teardown)
