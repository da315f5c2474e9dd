/*
 * A TLS connection as a plain descriptor, for what leaves HTTP: libcurl makes the connection and
 * checks the certificate, a thread carries the bytes until either side is closed.
 */
#pragma once

#include "base/error.h"

/* `url` is https; ca_file NULL: the system's certificates. */
int tunnel_open(const char *url, const char *ca_file, int *fd, struct error *err);
