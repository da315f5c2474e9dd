/*
 * A host for makers in a directory of its own, with the real clock and a real places. Opening
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
#include "driver/maker.h"
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
	struct maker_host host;
	struct makers makers;
	const struct maker *fake;
};

static inline void places_start(struct places *p)
{
	p->host = (struct maker_host){
		.allow_fake = p->allow_fake,
		.clock = p->given_clock ? p->given_clock : &p->clock,
		.places = p->places,
		.home_path = p->dir,
	};
	assert_int_equal(maker_store_new(p->dirfd, p->dir, &p->host.store, NULL), 0);
	makers_init(&p->makers, &p->host);
	p->fake = makers_find(&p->makers, DRIVER_SANDBOX, "fake");
}

static inline void places_end(struct places *p)
{
	makers_clear(&p->makers);
	maker_store_free(p->host.store);
}

static inline void places_restart(struct places *p)
{
	places_end(p);
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

	places_end(p);
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

/* The maker itself, without what stands around its calls. */
static inline int fake_acquire(struct places *p, const struct place_view *wanted,
			       struct made_place *out, struct error *err)
{
	return p->fake->acquire(p->fake, wanted, 0, out, err);
}

static inline int fake_resume(struct places *p, const struct place_view *wanted, const char *ref,
			      struct made_place *out, struct error *err)
{
	struct place_view place = *wanted;

	place.ref = ref;
	return p->fake->resume(p->fake, &place, 0, out, err);
}

static inline int fake_release(struct places *p, json_t *config, const char *ref,
			       const char *status, struct error *err)
{
	const struct place_view place = { .ref = ref, .config = { config } };

	return p->fake->release(p->fake, &place, status, 0, err);
}

static inline int fake_destroy(struct places *p, json_t *config, const char *ref, struct error *err)
{
	const struct place_view place = { .ref = ref, .config = { config } };

	return p->fake->destroy(p->fake, &place, 0, err);
}

static inline int fake_list(struct places *p, struct maker_inventory *out, struct error *err)
{
	return p->fake->inventory(p->fake, 0, out, err);
}

/* The place of a fake lease as a row has it; borrowed. */
static inline struct place fake_place(json_t *config, const char *ref, json_t *metadata)
{
	struct place place = { .id = PLACE_1,
			       .driver = DRIVER_SANDBOX,
			       .provider = (char *)"fake",
			       .provider_ref = (char *)ref,
			       .generation = 1,
			       .config = { config },
			       .metadata = metadata };

	memset(place.relay_key, 'a', sizeof(place.relay_key) - 1);
	return place;
}

#define places_test(f) cmocka_unit_test_setup_teardown(f, places_setup, places_teardown)
