/*
 * The makers of a host of their own (places.h), and environments
 * and places for them.
 */
#pragma once

#include "../driver/places.h"
#include "makers.h"

struct fixture {
	struct places *places;
	struct makers *makers;
};

static inline int fixture_setup_with(void **state, bool allow_fake)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	void *places;

	places_setup_with(&places, allow_fake);
	f->places = places;
	f->makers = &f->places->makers;
	*state = f;
	return 0;
}

static inline int fixture_setup(void **state)
{
	return fixture_setup_with(state, true);
}

static inline int fixture_setup_without_fake(void **state)
{
	return fixture_setup_with(state, false);
}

static inline int fixture_teardown(void **state)
{
	struct fixture *f = *state;
	void *places = f->places;

	places_teardown(&places);
	free(f);
	return 0;
}

static inline struct environment environment_of(enum driver_kind driver, json_t *config)
{
	return (struct environment){
		.id = ENV_1,
		.company_id = RUN_2,
		.name = (char *)"Test",
		.driver = driver,
		.config = config,
	};
}

/* A place as lease/ would write it after this grant. Shares the grant's strings. */
static inline struct place place_of(enum driver_kind driver, const struct place_grant *grant,
				    json_t *config)
{
	return (struct place){
		.id = PLACE_1,
		.environment_id = ENV_1,
		.driver = driver,
		.provider = grant->provider,
		.provider_ref = grant->provider_ref,
		.config = { config },
		.metadata = grant->metadata,
	};
}

#define driver_test(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
