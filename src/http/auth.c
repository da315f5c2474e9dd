#include "http/auth.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include "base/id.h"
#include "base/mem.h"
#include "http/trust.h"

#define WAYS 8
#define SETS (FAILURE_PEERS / WAYS)

const char *bearer_of(const char *header)
{
	if (strncasecmp(header, "Bearer ", 7) != 0)
		return NULL;
	header += 7 + strspn(header + 7, " ");

	size_t len = strlen(header);

	if (!len || len > BEARER_MAX)
		return NULL;
	for (size_t i = 0; i < len; i++)
		if (header[i] <= 0x20 || header[i] >= 0x7f)
			return NULL;
	return header;
}

/* Family, address, uid: where they stand in the key. */
enum { AT_FAMILY = 0, AT_ADDRESS = 1, AT_UID = 9 };

static void put_uid(struct peer *peer, int fd)
{
	uid_t uid;

	if (peer_uid(fd, &uid, NULL) == 0)
		memcpy(peer->key + AT_UID, &uid, sizeof(uid));
	else
		memset(peer->key + AT_UID, 0xff, sizeof(uid));
}

struct peer peer_of_socket(int fd)
{
	struct peer peer = { 0 };
	struct sockaddr_storage address = { 0 };
	socklen_t len = sizeof(address);

	if (getpeername(fd, (struct sockaddr *)&address, &len) < 0)
		return peer;
	peer.key[AT_FAMILY] = (unsigned char)address.ss_family;
	if (address.ss_family == AF_INET)
		memcpy(peer.key + AT_ADDRESS, &((struct sockaddr_in *)&address)->sin_addr, 4);
	else if (address.ss_family == AF_INET6)
		memcpy(peer.key + AT_ADDRESS, &((struct sockaddr_in6 *)&address)->sin6_addr, 8);
	if (socket_is_of_this_machine(fd))
		put_uid(&peer, fd);
	return peer;
}

struct bucket {
	struct peer peer;
	bool used;
	double tries; /* left */
	int64_t at;   /* when that was so, clock_mono */
};

struct failures {
	struct clock *clock;
	double tries;
	int64_t refill_ms;
	uint64_t seed; /* nobody outside can choose which peers share a set */
	pthread_mutex_t lock;
	struct bucket buckets[SETS][WAYS];
};

struct failures *failures_new(struct clock *clock, int tries, int64_t refill_ms)
{
	struct failures *failures = xcalloc(1, sizeof(*failures));

	failures->clock = clock;
	failures->tries = tries;
	failures->refill_ms = refill_ms;
	random_bytes(&failures->seed, sizeof(failures->seed));
	pthread_mutex_init(&failures->lock, NULL);
	return failures;
}

void failures_free(struct failures *failures)
{
	if (!failures)
		return;
	pthread_mutex_destroy(&failures->lock);
	free(failures);
}

static struct bucket *set_of(struct failures *failures, const struct peer *peer)
{
	uint64_t hash = failures->seed;

	for (size_t i = 0; i < sizeof(peer->key); i++) {
		hash = (hash ^ peer->key[i]) * 0x100000001b3u;
		hash ^= hash >> 29;
	}
	return failures->buckets[hash % SETS];
}

static struct bucket *find(struct failures *failures, const struct peer *peer)
{
	struct bucket *set = set_of(failures, peer);

	for (size_t i = 0; i < WAYS; i++)
		if (set[i].used && memcmp(&set[i].peer, peer, sizeof(*peer)) == 0)
			return &set[i];
	return NULL;
}

static void refill(struct failures *failures, struct bucket *bucket)
{
	int64_t now = clock_mono(failures->clock);
	double more = (double)(now - bucket->at) / (double)failures->refill_ms;

	bucket->tries = MIN_OF(bucket->tries + more, failures->tries);
	bucket->at = now;
}

int64_t failures_wait_ms(struct failures *failures, const struct peer *peer)
{
	int64_t wait = 0;

	pthread_mutex_lock(&failures->lock);

	struct bucket *bucket = find(failures, peer);

	if (bucket) {
		refill(failures, bucket);
		if (bucket->tries < 1)
			wait = 1 + (int64_t)((1 - bucket->tries) * (double)failures->refill_ms);
	}
	pthread_mutex_unlock(&failures->lock);
	return wait;
}

static struct bucket *oldest(struct bucket *set)
{
	struct bucket *at = set;

	for (size_t i = 0; i < WAYS; i++) {
		if (!set[i].used)
			return &set[i];
		if (set[i].at < at->at)
			at = &set[i];
	}
	return at;
}

void failures_note(struct failures *failures, const struct peer *peer)
{
	pthread_mutex_lock(&failures->lock);

	struct bucket *bucket = find(failures, peer);

	if (bucket) {
		refill(failures, bucket);
	} else {
		bucket = oldest(set_of(failures, peer));
		*bucket = (struct bucket){ .peer = *peer,
					   .used = true,
					   .tries = failures->tries,
					   .at = clock_mono(failures->clock) };
	}
	bucket->tries = MAX_OF(bucket->tries - 1, 0);
	pthread_mutex_unlock(&failures->lock);
}
