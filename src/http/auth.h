/*
 * Bearer tokens as they come in, and how often one peer may come with a bad one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/clock.h"

#define BEARER_MAX 4096
/* The token of an Authorization header, or NULL when it holds no bearer of a possible shape. */
const char *bearer_of(const char *header);

/*
 * Peers are told apart by address, IPv6 by the network of 64 bits that one subscriber has, and
 * those of this machine by uid as well, so that one user cannot use up another's tries.
 */
struct peer {
	unsigned char key[16];
};
struct peer peer_of_socket(int fd);

/*
 * Each peer has a bucket of tries that refills with time; what was not tried for long is forgotten
 * first, and there are never more than FAILURE_PEERS of them.
 */
#define FAILURE_PEERS 4096
struct failures;
struct failures *failures_new(struct clock *clock, int tries, int64_t refill_ms);
void failures_free(struct failures *failures);
/* How long the peer must wait before its next try; 0: not at all. */
int64_t failures_wait_ms(struct failures *failures, const struct peer *peer);
void failures_note(struct failures *failures, const struct peer *peer);
