#include "http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <sys/stat.h>
#include <time.h>
#include "base/fd.h"
#include "base/log.h"
#include "http/exchange.h"

#define FILE_MAX_BYTES (1 << 20)
#define CHAIN_MAX 16
/* A handshake that began with a pair has ended by then: connections have an idle limit. */
#define RETIRED_MS 600000

struct pair {
	struct pair *next;
	int64_t retired_at;
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned chain_len;
	gnutls_privkey_t key;
};

struct tls {
	char *cert_path, *key_path;
	struct clock *clock;
	pthread_mutex_t lock; /* a leaf */
	struct pair *current;
	struct pair *retired; /* handshakes may still use them */
};

static void pair_free(struct pair *pair)
{
	if (!pair)
		return;
	for (unsigned i = 0; i < pair->chain_len; i++)
		gnutls_pcert_deinit(&pair->chain[i]);
	if (pair->key)
		gnutls_privkey_deinit(pair->key);
	free(pair);
}

static void pair_freep(struct pair **pair)
{
	pair_free(*pair);
}

static void secret_free(struct buf *text)
{
	if (text->data)
		wipe(text->data, text->cap);
	buf_free(text);
}

static int read_key_file(const char *path, struct buf *text, struct error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read the key %s", path);
	if (!S_ISREG(st.st_mode) || st.st_mode & 037 || (st.st_uid != 0 && st.st_uid != geteuid()))
		return error_set(err, ERR_FORBIDDEN,
				 "the key %s must be a file of the server's user or root that no "
				 "others can read; chmod 600 it",
				 path);
	return fd_read_all(fd, text, FILE_MAX_BYTES, err);
}

static int refuse_pair(struct error *err, const char *path, int why)
{
	return error_set(err, ERR_VALIDATION, "%s cannot be used for TLS: %s", path,
			 gnutls_strerror(why));
}

/* gnutls compares key and certificate when both are put into one set of credentials. */
static int check_match(const gnutls_datum_t *cert, const gnutls_datum_t *key, const char *path,
		       struct error *err)
{
	gnutls_certificate_credentials_t both;
	int r = gnutls_certificate_allocate_credentials(&both);

	if (r == GNUTLS_E_SUCCESS) {
		r = gnutls_certificate_set_x509_key_mem(both, cert, key, GNUTLS_X509_FMT_PEM);
		gnutls_certificate_free_credentials(both);
	}
	return r < 0 ? refuse_pair(err, path, r) : 0;
}

static void warn_if_over(const struct pair *pair, const char *path)
{
	gnutls_x509_crt_t cert;

	if (gnutls_x509_crt_init(&cert) < 0)
		return;
	if (gnutls_x509_crt_import(cert, &pair->chain[0].cert, GNUTLS_X509_FMT_DER) == 0 &&
	    gnutls_x509_crt_get_expiration_time(cert) < time(NULL))
		log_warn("the certificate %s has expired: clients will refuse it", path);
	gnutls_x509_crt_deinit(cert);
}

static int pair_load(const struct tls *tls, struct pair **out, struct error *err)
{
	_cleanup_(pair_freep) struct pair *pair = xcalloc(1, sizeof(*pair));
	_cleanup_buf_ struct buf cert_text = { 0 };
	_cleanup_(secret_free) struct buf key_text = { 0 };
	unsigned len = CHAIN_MAX;

	if (file_read(AT_FDCWD, tls->cert_path, &cert_text, FILE_MAX_BYTES, err) < 0 ||
	    read_key_file(tls->key_path, &key_text, err) < 0)
		return -1;

	const gnutls_datum_t cert = { (unsigned char *)cert_text.data, (unsigned)cert_text.len };
	const gnutls_datum_t key = { (unsigned char *)key_text.data, (unsigned)key_text.len };

	if (check_match(&cert, &key, tls->cert_path, err) < 0)
		return -1;

	int r = gnutls_pcert_list_import_x509_raw(pair->chain, &len, &cert, GNUTLS_X509_FMT_PEM, 0);

	if (r < 0)
		return refuse_pair(err, tls->cert_path, r);
	pair->chain_len = len;
	r = gnutls_privkey_init(&pair->key);
	if (r == GNUTLS_E_SUCCESS)
		r = gnutls_privkey_import_x509_raw(pair->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (r < 0)
		return refuse_pair(err, tls->key_path, r);
	warn_if_over(pair, tls->cert_path);
	*out = steal(pair);
	return 0;
}

static void drop_retired(struct tls *tls)
{
	int64_t now = clock_mono(tls->clock);

	for (struct pair **at = &tls->retired; *at;) {
		struct pair *pair = *at;

		if (now - pair->retired_at < RETIRED_MS) {
			at = &pair->next;
			continue;
		}
		*at = pair->next;
		pair_free(pair);
	}
}

int tls_reload(struct tls *tls, struct error *err)
{
	struct pair *pair = NULL;

	if (pair_load(tls, &pair, err) < 0)
		return -1;
	pthread_mutex_lock(&tls->lock);
	if (tls->current) {
		tls->current->retired_at = clock_mono(tls->clock);
		tls->current->next = tls->retired;
		tls->retired = tls->current;
	}
	tls->current = pair;
	drop_retired(tls);
	pthread_mutex_unlock(&tls->lock);
	return 0;
}

int tls_new(const char *cert_path, const char *key_path, struct clock *clock, struct tls **out,
	    struct error *err)
{
	struct tls *tls = xcalloc(1, sizeof(*tls));

	tls->cert_path = xstrdup(cert_path);
	tls->key_path = xstrdup(key_path);
	tls->clock = clock;
	pthread_mutex_init(&tls->lock, NULL);
	if (tls_reload(tls, err) < 0) {
		tls_free(tls);
		return -1;
	}
	*out = tls;
	return 0;
}

void tls_free(struct tls *tls)
{
	if (!tls)
		return;
	pair_free(tls->current);
	while (tls->retired) {
		struct pair *next = tls->retired->next;

		pair_free(tls->retired);
		tls->retired = next;
	}
	pthread_mutex_destroy(&tls->lock);
	free(tls->cert_path);
	free(tls->key_path);
	free(tls);
}

/*
 * The callback is given nothing of ours. But libmicrohttpd keeps its connection on the session, and
 * on that our own, which was made when the socket was accepted.
 */
static int give_pair(gnutls_session_t session, const gnutls_datum_t *ca, int cas,
		     const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
		     gnutls_pcert_st **chain, unsigned *chain_len, gnutls_privkey_t *key)
{
	struct MHD_Connection *mhd = gnutls_session_get_ptr(session);
	const union MHD_ConnectionInfo *info =
		mhd ? MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT) : NULL;
	struct http_connection *connection = info ? info->socket_context : NULL;
	(void)ca;
	(void)cas;
	(void)algorithms;
	(void)algorithm_count;

	if (!connection || !connection->http->tls)
		return -1;

	struct tls *tls = connection->http->tls;

	pthread_mutex_lock(&tls->lock);
	*chain = tls->current->chain;
	*chain_len = tls->current->chain_len;
	*key = tls->current->key;
	pthread_mutex_unlock(&tls->lock);
	return 0;
}

void *tls_callback(void)
{
	return (void *)(intptr_t)give_pair;
}

bool tls_send_last(struct MHD_Connection *mhd, const char *data, size_t len)
{
	gnutls_session_t session =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session;

	if (gnutls_record_send(session, data, len) != (ssize_t)len)
		return false;
	gnutls_bye(session, GNUTLS_SHUT_WR);
	return true;
}
