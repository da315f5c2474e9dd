/*
 * The certificate and key of the TCP listener. They are read when the server starts and again when
 * it is told to: connections that begin afterwards get the new pair, and a pair that cannot be used
 * leaves the old one in place.
 */
#pragma once

#include <stdbool.h>
#include "base/clock.h"
#include "base/error.h"

struct tls;
/* PEM files; the key must not be open to others than its owner and group (ERR_FORBIDDEN). */
int tls_new(const char *cert_path, const char *key_path, struct clock *clock, struct tls **tls,
	    struct error *err);
int tls_reload(struct tls *tls, struct error *err);
void tls_free(struct tls *tls); /* when no handshake can be under way any more */

struct MHD_Connection;
/* The last words of a TLS connection, around libmicrohttpd; false when they cannot be said now. */
bool tls_send_last(struct MHD_Connection *mhd, const char *data, size_t len);

/* What libmicrohttpd calls at each handshake (MHD_OPTION_HTTPS_CERT_CALLBACK). */
void *tls_callback(void);
