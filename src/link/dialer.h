/*
 * A dialer delivers connected descriptors to the relays of places. Place/ greets the relay and makes
 * a link of each; it knows no socket, no keeper and no host. The keeper of this host is a dialer
 * (link/keeper.h). A keeper on another host, reached over a bridge, and a channel that a provider
 * carries are others: each fills one `struct dialer` and keeps it inside a struct of its own.
 *
 * A maker names the dialer of its places (`dialer` in driver/maker.h). Calls may block until their
 * deadline (boottime_ms), hold no lock of their caller and come from several threads at once.
 *
 * "Cannot be reached" is not "lost": only ERR_LEASE_LOST gives a place up. A dialer answers it when
 * the relay's host, or what made the relay, reports that the relay is dead. Every other error means
 * that the caller tries again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"
#include "wire/message.h"

/* What is asked for. Everything is borrowed. */
struct dial {
	const char *place_id;
	/* How the relay is made if there is none. NULL: it was made before, and is only connected to. */
	const struct wire_place_make *make;
	/* With `make`: a relay that an earlier holder of the place left is ended first. */
	bool replace;
	/*
	 * With `make`: HELLO (wire/hello.h) for a dialer that can hand a new relay its first connection.
	 * NULL, or a dialer that cannot: the caller greets the relay on the descriptor.
	 */
	const struct buf *hello;
	bool behind_walls; /* the relay's user is not ours: only its key proves who it is */
};

/* The answer. The first three count also after an error. */
struct dialed {
	bool replaced;  /* `replace` is done */
	bool made;      /* the relay of this holding exists, or existed */
	uint64_t walls; /* of a native place that was made; wire/walls.h */
	int fd;         /* connected; the caller's */
	bool handed;    /* the HELLO is in it already: the relay answers WELCOME */
};

/* How much of a place ends. */
enum dial_end {
	END_PLACE,     /* all of it; its name is free afterwards */
	END_PROCESSES, /* its processes, its relay too: the holder has lost it. Its files stay */
};

struct dialer {
	/* On an error *out has no descriptor. */
	int (*dial)(struct dialer *self, const struct dial *wanted, int64_t deadline,
		    struct dialed *out, struct error *err);
	/* Also when the place's relay does not answer. A place that does not exist is success. */
	int (*end)(struct dialer *self, const char *place_id, enum dial_end what, int64_t deadline,
		   struct error *err);
	/* Whether it is worth to dial a place that was just opened. Asks nobody far away; NULL: yes. */
	bool (*may_have_relay)(struct dialer *self, const char *place_id);
	/*
	 * The directory that the place's relay writes (wire/place.h), which outlives it for a while:
	 * a descriptor. DIALER_NO_FILES: there is none; DIALER_NOT_NOW: err says why. NULL: its files
	 * cannot be read from this host, so commands of a dead relay are lost.
	 */
	int (*open_files)(struct dialer *self, const char *place_id, struct error *err);
	/*
	 * Where on this host the layer is that a place wrote over its workspace: allocated.
	 * ERR_NOT_FOUND: there is none. NULL: its places have no mounts of this host.
	 */
	int (*workspace_upper)(struct dialer *self, const char *place_id, int64_t deadline,
			       char **path, struct error *err);
};
#define DIALER_NO_FILES (-1)
#define DIALER_NOT_NOW (-2)

/*
 * Which dialer a place has. It is asked before every question, because a dialer may need a config
 * with secrets to become ready, and that config is not kept. The dialer lives as long as the places.
 */
struct dialer_source {
	int (*get)(void *arg, int64_t deadline, struct dialer **out, struct error *err);
	void *arg;
	void (*free)(void *arg); /* NULL: nothing to free */
};
