/*
 * Open places and their relays.
 *
 *   opened    how the relay is made is known; nothing runs
 *   made      there is a relay for it; the link is there or is being mended
 *   gone      the relay died: execs end as lease_lost, new ones are refused
 *   stopped   the holding is over: everything of it is ended
 *
 * A place whose relay exists stays connected while it is open, because that is what keeps the
 * relay's absence clock from running out: the reconnectors connect again whatever broke.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "link/handshake.h"
#include "place/places.h"
#include "place/shell/shell_internal.h"

#define RETRY_FIRST_MS 5
#define RETRY_MAX_MS 500
#define MEND_FIRST_MS 50
#define MEND_MAX_MS 10000
/* A relay that answers at all answers sooner; one that hangs must not keep the others waiting. */
#define MEND_TRY_MS 1000
#define STRIKES_MAX 3

static void one_shot_drop(struct one_shot *one_shot)
{
	if (one_shot->free)
		one_shot->free(one_shot->arg);
	*one_shot = (struct one_shot){ 0 };
}

/* Values of it may be secrets. */
static void env_free(char **env)
{
	for (char **e = env; e && *e; e++)
		wipe(*e, strlen(*e));
	strv_free(env);
}

static void dialer_source_drop(struct dialer_source *source)
{
	if (source->free)
		source->free(source->arg);
	*source = (struct dialer_source){ 0 };
}

static void dialer_unref(struct dialer_ref *ref)
{
	if (!ref || atomic_fetch_sub(&ref->refs, 1) > 1)
		return;
	dialer_source_drop(&ref->source);
	free(ref);
}

/* Takes the source, if there is one. */
static void set_dialer(struct open_place *p, struct dialer_source *source)
{
	struct dialer_ref *ref, *old;

	if (!source->get)
		return;
	ref = xcalloc(1, sizeof(*ref));
	atomic_init(&ref->refs, 1);
	ref->source = *source;
	*source = (struct dialer_source){ 0 };
	pthread_mutex_lock(&p->lock);
	old = p->dialer;
	p->dialer = ref;
	pthread_mutex_unlock(&p->lock);
	dialer_unref(old);
}

int place_dialer(struct open_place *p, int64_t deadline, struct dialer **out, struct error *err)
{
	struct dialer_ref *ref;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	ref = p->dialer;
	if (ref)
		atomic_fetch_add(&ref->refs, 1);
	pthread_mutex_unlock(&p->lock);
	if (ref)
		rc = ref->source.get(ref->source.arg, deadline, out, err);
	else
		*out = keeper_dialer(p->places->keeper);
	dialer_unref(ref);
	return rc;
}

static void set_commands(struct open_place *p, const struct place_commands *commands)
{
	char **env = NULL;

	for (char **e = commands->env; e && *e; e++)
		strv_push(&env, xstrdup(*e));
	pthread_mutex_lock(&p->lock);
	env_free(p->commands.env);
	p->commands = *commands;
	p->commands.env = env;
	pthread_mutex_unlock(&p->lock);
}

struct open_place *place_ref(struct open_place *p)
{
	atomic_fetch_add(&p->refs, 1);
	return p;
}

void place_unref(struct open_place *p)
{
	if (atomic_fetch_sub(&p->refs, 1) > 1)
		return;
	if (p->link)
		link_unref(p->link);
	wipe(p->key, sizeof(p->key));
	one_shot_drop(&p->one_shot);
	dialer_unref(p->dialer);
	close_fdp(&p->stop_fd);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->changed);
	free(p->id);
	free(p->root);
	free(p->cwd);
	free(p->sandbox);
	free(p->label);
	env_free(p->commands.env);
	free(p);
}

static struct open_place **find_locked(struct places *places, const char *id)
{
	struct open_place **p = &places->open[places_bucket(id)];

	while (*p && !streq((*p)->id, id))
		p = &(*p)->next;
	return p;
}

static struct open_place *place_new(struct places *places, const struct exec_place *from)
{
	struct open_place *p = xcalloc(1, sizeof(*p));

	atomic_init(&p->refs, 1);
	p->places = places;
	p->id = xstrdup(from->place_id);
	p->generation = from->generation;
	memcpy(p->key, from->key, sizeof(p->key));
	p->root = xstrdup(from->root);
	p->cwd = xstrdup(from->cwd);
	p->absence_ms = from->absence_ms > 0 ? from->absence_ms : places->absence_ms;
	p->stopped = NOT_STOPPED;
	p->seen_ms = boottime_ms();
	p->stop_fd = -1;
	p->label = xstrdup(from->label);
	p->pool = from->pool;
	p->made = from->must_exist;
	if (from->sandbox) {
		p->sandbox = xmalloc(from->sandbox_len + 1);
		memcpy(p->sandbox, from->sandbox, from->sandbox_len);
		p->sandbox_len = from->sandbox_len;
	}
	pthread_mutex_init(&p->lock, NULL);
	cond_init(&p->changed);
	set_commands(p, &from->commands);
	return p;
}

static void mend_locked(struct open_place *p, int64_t delay)
{
	p->to_reconnect = true;
	p->mend_delay = delay;
	p->mend_at = boottime_ms() + delay;
	pthread_cond_signal(&p->places->mend);
}

/* With the lock of all places: one that another dialer reaches is asked by the reconnectors. */
static bool relay_may_exist(struct open_place *p)
{
	struct dialer *dialer = keeper_dialer(p->places->keeper);

	return p->dialer || dialer->may_have_relay(dialer, p->id);
}

/* Takes it out of the table and ends what hangs on it. */
static void shut(struct open_place *p, enum exec_reason why)
{
	pthread_mutex_lock(&p->lock);
	if (p->stopped == NOT_STOPPED)
		p->stopped = (int)why;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->stop_fd >= 0)
		latch_set(p->stop_fd);
}

static int open_place(struct places *places, const struct exec_place *from, int stop_fd,
		      struct dialer_source *dialer, struct error *err)
{
	struct open_place *old = NULL, *p;

	if (!path_is_segment(from->place_id) || strlen(from->place_id) > 64)
		return error_set(err, ERR_VALIDATION, "this is no place id");
	if (from->root && (!path_is_absolute(from->root) || !path_is_clean(from->root)))
		return error_set(err, ERR_VALIDATION, "a place's root is a clean absolute path");
	pthread_mutex_lock(&places->lock);

	struct open_place **slot = find_locked(places, from->place_id);

	if (*slot && (*slot)->generation == from->generation) {
		set_commands(*slot, &from->commands);
		set_dialer(*slot, dialer);
		pthread_mutex_unlock(&places->lock);
		return 0;
	}
	old = *slot;
	p = place_new(places, from);
	p->one_shot = from->one_shot;
	p->stop_fd = stop_fd;
	set_dialer(p, dialer);
	/* What runs for another holder must not be reached, whatever key it has. */
	p->fresh = old != NULL;
	p->next = old ? old->next : NULL;
	*slot = p;
	/* What is described by a sandbox is made when somebody asks for that. */
	if (!p->fresh && !place_is_shell(p) && p->sandbox_len == 0 && relay_may_exist(p))
		mend_locked(p, 0);
	pthread_mutex_unlock(&places->lock);
	if (old) {
		shut(old, EXEC_LEASE_LOST);
		place_drop_link(old);
		place_unref(old);
	}
	return 1;
}

int places_open(struct places *places, const struct exec_place *from, struct error *err)
{
	struct one_shot one_shot = from->one_shot;
	struct dialer_source dialer = from->dialer;
	_cleanup_close_ int stop_fd = one_shot.call ? latch_new(err) : -1;
	int opened =
		one_shot.call && stop_fd < 0 ? -1 : open_place(places, from, stop_fd, &dialer, err);

	dialer_source_drop(&dialer);
	if (opened <= 0) {
		one_shot_drop(&one_shot);
		return opened;
	}
	steal_fd(&stop_fd);
	return 0;
}

void places_set_commands(struct places *places, const struct exec_place *from)
{
	pthread_mutex_lock(&places->lock);

	struct open_place *p = *find_locked(places, from->place_id);

	if (p && p->generation == from->generation)
		set_commands(p, &from->commands);
	pthread_mutex_unlock(&places->lock);
}

struct open_place *place_admit_locked(struct places *places, const char *place_id,
				      int64_t generation, struct error *err)
{
	struct open_place *p = place_id ? *find_locked(places, place_id) : NULL;

	if (!p) {
		error_set(err, ERR_LEASE_ENDED, "the place is not open");
		return NULL;
	}
	if (p->generation != generation && !FENCE_OFF("exec.fence")) {
		error_set(err, ERR_STALE_GENERATION,
			  "the place is open for generation %lld, not %lld",
			  (long long)p->generation, (long long)generation);
		return NULL;
	}
	return place_ref(p);
}

struct open_place *place_admit(struct places *places, const char *place_id, int64_t generation,
			       struct error *err)
{
	pthread_mutex_lock(&places->lock);

	struct open_place *p = place_admit_locked(places, place_id, generation, err);

	pthread_mutex_unlock(&places->lock);
	return p;
}

int place_stopped(struct open_place *p)
{
	pthread_mutex_lock(&p->lock);

	int stopped = p->stopped;

	pthread_mutex_unlock(&p->lock);
	return stopped;
}

struct link *place_current_link(struct open_place *p)
{
	pthread_mutex_lock(&p->lock);

	struct link *link = p->link ? link_ref(p->link) : NULL;

	pthread_mutex_unlock(&p->lock);
	return link;
}

void place_drop_link(struct open_place *p)
{
	pthread_mutex_lock(&p->lock);

	struct link *link = p->link;

	p->link = NULL;
	pthread_mutex_unlock(&p->lock);
	if (link) {
		link_close(link);
		link_unref(link);
	}
}

/* From the loop's thread. The reference that came with the link ends here. */
static void link_down(struct link *link, void *owner)
{
	struct open_place *p = owner;
	struct places *places = p->places;
	bool mend;

	pthread_mutex_lock(&p->lock);
	mend = p->link == link;
	if (mend) {
		p->seen_ms = boottime_ms();
		p->link = NULL;
		link_unref(link);
	}
	/* One that breaks the rules again and again is no relay of ours any more. */
	if (link_was_hostile(link) && ++p->strikes >= STRIKES_MAX)
		p->gone = true;
	mend = mend && p->stopped == NOT_STOPPED && !p->gone && !p->superseded;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (mend && !atomic_load(&places->detached)) {
		pthread_mutex_lock(&places->lock);
		mend_locked(p, MEND_FIRST_MS);
		pthread_mutex_unlock(&places->lock);
	}
	place_unref(p);
}

/* Reaching the relay: by one thread at a time, without a lock. */

enum reach {
	REACHED,
	NOT_YET, /* to be tried again */
	LOST,    /* dead, or not the relay of this holding */
	TAKEN,   /* another server has it */
};

static uint64_t next_epoch(struct places *places)
{
	unsigned count = atomic_fetch_add(&places->connections, 1) + 1;

	return (uint64_t)places->boot_epoch << 32 | count;
}

/* A connection to the relay becomes a link. The descriptor is taken in any case. */
static int new_link(struct open_place *p, int fd, struct link_options *options,
		    const struct buf *early, struct link **out, struct error *err)
{
	_cleanup_free_ char *name = xasprintf("relay of place %s", p->id);

	options->name = name;
	options->owner = place_ref(p);
	options->down = link_down;
	if (link_new(p->places->loop, fd, options, early->data, early->len, out, err) == 0)
		return 0;
	place_unref(p);
	return -1;
}

/* Three chances to be heard before the relay gives us up. */
static int64_t ping_period(uint64_t absence_ms)
{
	int64_t most = (int64_t)MIN_OF(absence_ms, PLACE_ABSENCE_MAX_MS) / 3;

	return MAX_OF(MIN_OF(most, (int64_t)WIRE_IDLE_MS), 100);
}

static void describe(const struct open_place *p, struct wire_place_make *m)
{
	*m = (struct wire_place_make){
		.place_id = p->id,
		.kind = p->sandbox ? PLACE_NATIVE
			: p->root  ? PLACE_DIR
				   : PLACE_LOCAL,
		.sandbox = { p->sandbox, (uint32_t)p->sandbox_len },
		.label = p->label,
		.pool = p->pool,
		.root = p->root,
		.cwd = p->cwd,
		.absence_ms = (uint64_t)p->absence_ms,
	};
	memcpy(m->key, p->key, sizeof(m->key));
}

static enum reach greet(struct open_place *p, int fd, int64_t deadline, struct handshake *g,
			struct error *err)
{
	if (FAULT_HERE("channel.greet", err) < 0)
		return NOT_YET;
	if (handshake_relay(fd, p->id, p->key, next_epoch(p->places), deadline, g, err) == 0)
		return REACHED;
	error_wrap(err, "greeting the relay of place %s", p->id);
	if (g->refusal == WERR_STALE_EPOCH)
		return TAKEN;
	if (err->code == ERR_UNAUTHENTICATED || err->code == ERR_PROTOCOL) {
		log_warn("%s", err->message);
		return LOST;
	}
	return NOT_YET;
}

/* A connection with our HELLO in it already: the relay's WELCOME comes over the link. */
static enum reach take_handed(struct open_place *p, int fd, struct link **out, struct error *err)
{
	struct link_options options = {
		.handed = true,
		.ping_ms = ping_period((uint64_t)p->absence_ms),
	};

	return new_link(p, fd, &options, &(struct buf){ 0 }, out, err) < 0 ? NOT_YET : REACHED;
}

static enum reach take_connected(struct open_place *p, int connected, int64_t deadline,
				 bool *greeted, struct link **out, struct error *err)
{
	_cleanup_handshake_ struct handshake g = { 0 };
	_cleanup_close_ int fd = connected;
	struct link_options options = { 0 };
	enum reach r = greet(p, fd, MIN_OF(deadline, boottime_ms() + WIRE_HELLO_MS), &g, err);

	if (r != REACHED)
		return r;
	*greeted = true;
	options.features = g.features;
	options.ping_ms = ping_period(g.absence_ms);
	return new_link(p, steal_fd(&fd), &options, &g.early, out, err) < 0 ? NOT_YET : REACHED;
}

static int dial(struct open_place *p, bool make, int64_t deadline, struct dialed *dialed,
		struct error *err)
{
	_cleanup_buf_ struct buf hello = { 0 };
	struct dialer *dialer;
	struct dial wanted = {
		.place_id = p->id,
		.replace = p->fresh,
		.behind_walls = p->sandbox != NULL,
	};
	struct wire_place_make m;
	struct hello offer;
	int rc;

	if (place_dialer(p, deadline, &dialer, err) < 0)
		return -1;
	if (!make)
		return dialer->dial(dialer, &wanted, deadline, dialed, err);
	describe(p, &m);
	wanted.make = &m;
	pthread_mutex_lock(&p->lock);
	/* A paused place must get the pause first, over a link that has finished its handshake. */
	if (!p->paused)
		wanted.hello = &hello;
	pthread_mutex_unlock(&p->lock);
	rc = hello_offer(&offer, p->id, next_epoch(p->places), 0, &hello, err);
	if (rc == 0)
		rc = dialer->dial(dialer, &wanted, deadline, dialed, err);
	wipe(m.key, sizeof(m.key));
	return rc;
}

static enum reach reach(struct open_place *p, bool make, int64_t deadline, bool *made,
			bool *greeted, struct link **out, struct error *err)
{
	struct dialed dialed = { .fd = -1 };
	int rc = dial(p, make, deadline, &dialed, err);

	pthread_mutex_lock(&p->lock);
	p->fresh &= !dialed.replaced;
	if (dialed.made)
		p->walls = dialed.walls;
	pthread_mutex_unlock(&p->lock);
	*made |= dialed.made;
	if (rc < 0)
		return err->code == ERR_LEASE_LOST ? LOST : NOT_YET;
	return dialed.handed ? take_handed(p, dialed.fd, out, err)
			     : take_connected(p, dialed.fd, deadline, greeted, out, err);
}

/* 1: *out is the link; 0: one has to be made, by us; -1: there will be none. */
static int settled_locked(struct open_place *p, int64_t deadline, struct link **out,
			  struct error *err)
{
	for (;;) {
		if (atomic_load(&p->places->detached))
			return error_set(err, ERR_UNAVAILABLE, "the server is going");
		if (p->stopped != NOT_STOPPED)
			return error_set(err, ERR_LEASE_LOST, "the place was stopped");
		if (p->gone)
			return error_set(err, ERR_LEASE_LOST, "the place's relay is gone");
		if (p->superseded)
			return error_set(err, ERR_UNAVAILABLE,
					 "another server has adopted the place");
		if (p->link && link_is_up(p->link)) {
			*out = link_ref(p->link);
			return 1;
		}
		/* One that is down is connected anew after link_down has judged why it is. */
		if (!p->connecting && !p->link)
			return 0;
		if (!cond_wait_until(&p->changed, &p->lock, deadline))
			return error_set(err, ERR_TIMEOUT, "the place's relay does not answer");
	}
}

/* One try by this thread; what is known afterwards is known to all. */
static enum reach try_locked(struct open_place *p, bool make, int64_t deadline, struct error *err)
{
	struct link *link = NULL;
	bool made = p->made, greeted = false;
	enum reach r;

	p->connecting = true;
	pthread_mutex_unlock(&p->lock);
	error_clear(err);
	r = reach(p, make && !made, deadline, &made, &greeted, &link, err);
	pthread_mutex_lock(&p->lock);
	p->connecting = false;
	/* Down already: nobody was told, because it was not the place's link yet. */
	if (r == REACHED && !link_is_up(link)) {
		link_unref(link);
		r = NOT_YET;
		made = true;
		error_set(err, ERR_TIMEOUT, "the place's relay hung up");
	} else if (r == REACHED) {
		made = true;
		p->seen_ms = boottime_ms();
		if (p->link)
			link_unref(p->link);
		p->link = link;
		place_repeat_pause_locked(p);
		/* One that was handed over is a new relay's, which holds nothing. */
		p->unlisted |= greeted;
	}
	p->made = made;
	/* What was never seen alive for this holding may be an earlier one's remains. */
	p->gone |= r == LOST && made;
	p->superseded |= r == TAKEN;
	pthread_cond_broadcast(&p->changed);
	return r;
}

int place_link(struct open_place *p, bool make, int64_t deadline, struct link **out,
	       struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	int64_t delay = RETRY_FIRST_MS;
	bool unlisted;
	int rc;

	*out = NULL;
	pthread_mutex_lock(&p->lock);
	while ((rc = settled_locked(p, deadline, out, err)) == 0) {
		enum reach r = try_locked(p, make, deadline, &why);

		if (r == LOST || r == TAKEN) {
			error_move(err, &why);
			error_recode(err, r == LOST ? ERR_LEASE_LOST : ERR_UNAVAILABLE);
			rc = -1;
			break;
		}
		if (r == REACHED)
			continue;
		/* A failure to make it is the caller's to know, not something to sit out. */
		if (boottime_ms() >= deadline || (make && !p->made)) {
			error_move(err, &why);
			if (!make)
				error_recode(err, ERR_TIMEOUT);
			rc = -1;
			break;
		}
		cond_wait_until(&p->changed, &p->lock, MIN_OF(boottime_ms() + delay, deadline));
		delay = MIN_OF(delay * 2, RETRY_MAX_MS);
	}
	unlisted = p->unlisted;
	pthread_mutex_unlock(&p->lock);
	if (rc > 0 && unlisted)
		place_note_reached(p);
	return rc < 0 ? -1 : 0;
}

/* The reconnectors */

/* The one that waits longest; NULL: none is due before *wait_until. */
static struct open_place *next_to_mend_locked(struct places *places, int64_t *wait_until)
{
	struct open_place *first = NULL;

	for (size_t i = 0; i < PLACES_BUCKETS; i++)
		for (struct open_place *p = places->open[i]; p; p = p->next)
			if (p->to_reconnect && (!first || p->mend_at < first->mend_at))
				first = p;
	*wait_until = first ? first->mend_at : -1;
	if (!first || first->mend_at > boottime_ms())
		return NULL;
	first->to_reconnect = false;
	return place_ref(first);
}

static void mend(struct open_place *p)
{
	struct places *places = p->places;
	_cleanup_link_ struct link *link = NULL;
	_cleanup_error_ struct error err = { 0 };

	if (place_link(p, false, boottime_ms() + MEND_TRY_MS, &link, &err) == 0)
		return;
	if (err.code == ERR_LEASE_LOST)
		log_warn("place %s: %s", p->id, err.message);
	if (err.code == ERR_LEASE_LOST || err.code == ERR_UNAVAILABLE)
		return;
	pthread_mutex_lock(&places->lock);
	mend_locked(p, MIN_OF(MAX_OF(p->mend_delay, MEND_FIRST_MS) * 2, MEND_MAX_MS));
	pthread_mutex_unlock(&places->lock);
}

void *reconnector_main(void *arg)
{
	struct places *places = arg;

	pthread_mutex_lock(&places->lock);
	while (!places->reconnectors_stop) {
		int64_t wait_until;
		struct open_place *p = next_to_mend_locked(places, &wait_until);

		if (!p) {
			cond_wait_until(&places->mend, &places->lock, wait_until);
			continue;
		}
		pthread_mutex_unlock(&places->lock);
		mend(p);
		place_unref(p);
		pthread_mutex_lock(&places->lock);
	}
	pthread_mutex_unlock(&places->lock);
	return NULL;
}
