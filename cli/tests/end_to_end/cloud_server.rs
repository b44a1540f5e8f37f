//! The read half of Google Cloud Storage and of Azure Blob Storage on loopback, as their references
//! describe it: listing in pages, ranges, entity tags, credentials that expire.
//!
//! It knows as much of the protocols as a client that reads needs, checks what a client must send, and
//! panics at anything else, so that a test sees it. Signatures are looked for and not verified.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{self, BufRead, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use url::Url;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// The XML interface of Google Cloud Storage.
    Google,
    /// The REST interface of Azure Blob Storage.
    Azure,
}

/// The only bucket or container.
pub(crate) const CONTAINER: &str = "bucket";

pub(crate) const ACCOUNT: &str = "account";
/// The access key of [`ACCOUNT`], in base64 as the client wants it.
pub(crate) const ACCOUNT_KEY: &str = "dGhlLXNlY3JldC1vZi10aGUtdGVzdA==";

/// A signature of Azure that ended long ago.
pub(crate) const SAS_EXPIRED: &str =
    "sv=2023-11-03&se=2020-01-01T00%3A00%3A00Z&sr=c&sp=rl&sig=b2xkLXNlY3JldA";
/// A signature of Azure that has years to go.
pub(crate) const SAS: &str =
    "sv=2023-11-03&se=2999-01-01T00%3A00%3A00Z&sr=c&sp=rl&sig=b2xkLXNlY3JldA";

/// Everything that ends before this has expired, by the clock of the server.
const NOW: &str = "2026-01-01T00:00:00Z";

const PAGE: usize = 7;

/// A server that runs until the process ends.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// A request, as far as a test asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Without the query, decoded.
    pub(crate) path: String,
    /// Of the query, decoded.
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) range: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) authorization: Option<String>,
}

#[derive(Debug)]
struct State {
    provider: Provider,
    objects: BTreeMap<String, Object>,
    asked: Vec<Asked>,
    /// Requests that are still let in; then credentials have expired.
    let_in: usize,
    versions: u64,
}

#[derive(Debug, Clone)]
struct Object {
    bytes: Vec<u8>,
    version: u64,
}

struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Cloud {
    /// A server with one empty [`CONTAINER`].
    pub(crate) fn start(provider: Provider) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = State {
            provider,
            objects: BTreeMap::new(),
            asked: Vec::new(),
            let_in: usize::MAX,
            versions: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let served = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&served);
                // A client that goes away in the middle of a request is no concern of the test.
                thread::spawn(move || serve(&stream, &state).is_ok());
            }
        });
        Self { address, state }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn put(&self, key: &str, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        state.versions += 1;
        let version = state.versions;
        state.objects.insert(key.to_owned(), Object { bytes, version });
    }

    /// Lets so many more requests in; then its credentials have expired.
    pub(crate) fn expire_after(&self, requests: usize) {
        lock(&self.state).let_in = requests;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.state).asked.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    while let Some((method, asked)) = read_request(&mut lines)? {
        let answer = lock(state).answer(&method, asked);
        let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
        for (name, value) in &answer.headers {
            _ = write!(head, "{name}: {value}\r\n");
        }
        _ = write!(head, "content-length: {}\r\n\r\n", answer.body.len());
        let mut stream = stream;
        stream.write_all(head.as_bytes())?;
        if method != "HEAD" {
            stream.write_all(&answer.body)?;
        }
    }
    Ok(())
}

fn read_request(lines: &mut impl BufRead) -> io::Result<Option<(String, Asked)>> {
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let url = Url::parse(&format!("http://server{target}")).map_err(io::Error::other)?;
    let method = method.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    assert!(headers.get("content-length").is_none_or(|it| it == "0"), "a reader sends no body");
    let asked = Asked {
        path: decoded(url.path()),
        query: url.query_pairs().map(|(name, value)| (name.into(), value.into())).collect(),
        // Azure has a name of its own for it, and takes the usual one too.
        range: headers.get("x-ms-range").or(headers.get("range")).cloned(),
        if_match: headers.get("if-match").cloned(),
        authorization: headers.get("authorization").cloned(),
    };
    Ok(Some((method, asked)))
}

/// Resolves `%20` and the like.
fn decoded(path: &str) -> String {
    let form = format!("path={}", path.replace('+', "%2B"));
    url::form_urlencoded::parse(form.as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

impl State {
    #[expect(clippy::needless_pass_by_value, reason = "it is answered once")]
    fn answer(&mut self, method: &str, asked: Asked) -> Answer {
        self.asked.push(asked.clone());
        assert!(matches!(method, "GET" | "HEAD"), "{method} is no reading");
        let is_let_in = self.let_in > 0 && self.is_valid(&asked);
        self.let_in = self.let_in.saturating_sub(1);
        if !is_let_in {
            return self.expired();
        }
        let path = asked.path.trim_start_matches('/');
        let Some(rest) = path.strip_prefix(CONTAINER) else {
            return refused("404 Not Found", "NoSuchBucket", "there is one bucket");
        };
        match rest.trim_start_matches('/') {
            "" => self.list(&asked.query),
            key => self.get(key, &asked),
        }
    }

    fn is_valid(&self, asked: &Asked) -> bool {
        match self.provider {
            // Its client fetches tokens from Google itself and nowhere else, so that none come here.
            Provider::Google => true,
            Provider::Azure => match (asked.query.get("se"), &asked.authorization) {
                (Some(end), _) => asked.query.contains_key("sig") && end.as_str() > NOW,
                (None, Some(key)) => key.starts_with(&format!("SharedKey {ACCOUNT}:")),
                (None, None) => false,
            },
        }
    }

    fn expired(&self) -> Answer {
        match self.provider {
            Provider::Google => {
                refused("401 Unauthorized", "AuthenticationRequired", "the token has expired")
            }
            Provider::Azure => refused(
                "403 Forbidden",
                "AuthenticationFailed",
                "signature not valid in the time frame",
            ),
        }
    }

    fn get(&self, key: &str, asked: &Asked) -> Answer {
        let Some(object) = self.objects.get(key) else {
            let code = if self.provider == Provider::Google { "NoSuchKey" } else { "BlobNotFound" };
            return refused("404 Not Found", code, key);
        };
        let tag = object.tag();
        if asked.if_match.as_ref().is_some_and(|wanted| *wanted != tag) {
            return refused("412 Precondition Failed", "ConditionNotMet", key);
        }
        let len = object.bytes.len();
        let mut headers = vec![
            ("etag", tag),
            ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_owned()),
            ("content-type", "application/octet-stream".to_owned()),
        ];
        let Some(range) = &asked.range else {
            return Answer { status: "200 OK", headers, body: object.bytes.clone() };
        };
        let Some((start, end)) = within(range, len) else {
            return refused("416 Range Not Satisfiable", "InvalidRange", range);
        };
        headers.push(("content-range", format!("bytes {start}-{}/{len}", end - 1)));
        let body = object.bytes[start..end].to_vec();
        Answer { status: "206 Partial Content", headers, body }
    }

    /// A page of what lies below a prefix, folders in one entry where a delimiter is given.
    fn list(&self, query: &BTreeMap<String, String>) -> Answer {
        let text = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (text("prefix"), text("delimiter"));
        let (after, most) = match self.provider {
            Provider::Google => (text("continuation-token"), text("max-keys")),
            Provider::Azure => (text("marker"), text("maxresults")),
        };
        let most = most.parse().map_or(PAGE, |it: usize| it.min(PAGE));
        let entries: BTreeSet<String> = self
            .objects
            .keys()
            .filter_map(|key| {
                let below = key.strip_prefix(prefix)?;
                let folder = below.split_once(delimiter).filter(|_| !delimiter.is_empty());
                Some(folder.map_or(key.clone(), |(name, _)| format!("{prefix}{name}{delimiter}")))
            })
            .filter(|entry| entry.as_str() > after)
            .collect();
        let page: Vec<&String> = entries.iter().take(most).collect();
        let next = page.last().filter(|_| entries.len() > page.len()).map_or("", |it| it.as_str());
        let body = match self.provider {
            Provider::Google => self.page_of_google(&page, next),
            Provider::Azure => self.page_of_azure(&page, next),
        };
        let headers = vec![("content-type", "application/xml".to_owned())];
        Answer { status: "200 OK", headers, body: body.into_bytes() }
    }

    fn page_of_google(&self, page: &[&String], next: &str) -> String {
        let mut xml = format!(
            "<ListBucketResult><Name>{CONTAINER}</Name><IsTruncated>{}</IsTruncated>",
            !next.is_empty()
        );
        if !next.is_empty() {
            _ = write!(xml, "<NextContinuationToken>{next}</NextContinuationToken>");
        }
        for entry in page {
            _ = match self.objects.get(*entry) {
                Some(object) => write!(
                    xml,
                    "<Contents><Key>{entry}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                     <ETag>{}</ETag><Size>{}</Size></Contents>",
                    object.tag().replace('"', "&quot;"),
                    object.bytes.len()
                ),
                None => write!(xml, "<CommonPrefixes><Prefix>{entry}</Prefix></CommonPrefixes>"),
            };
        }
        xml + "</ListBucketResult>"
    }

    fn page_of_azure(&self, page: &[&String], next: &str) -> String {
        let mut xml = "<EnumerationResults><Blobs>".to_owned();
        for entry in page {
            _ = match self.objects.get(*entry) {
                Some(object) => write!(
                    xml,
                    "<Blob><Name>{entry}</Name><Properties><Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT\
                     </Last-Modified><Etag>{}</Etag><Content-Length>{}</Content-Length>\
                     <Content-Type>application/octet-stream</Content-Type></Properties></Blob>",
                    object.tag().replace('"', "&quot;"),
                    object.bytes.len()
                ),
                None => write!(xml, "<BlobPrefix><Name>{entry}</Name></BlobPrefix>"),
            };
        }
        _ = write!(xml, "</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>");
        xml
    }
}

impl Object {
    fn tag(&self) -> String {
        format!("\"0x{:08X}\"", self.version)
    }
}

/// The bytes that `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT` asks for.
fn within(range: &str, len: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first.parse().ok(), last.parse::<usize>().ok()) {
        (Some(first), Some(last)) => (first, (last + 1).min(len)),
        (Some(first), None) => (first, len),
        (None, Some(count)) => (len.saturating_sub(count), len),
        (None, None) => return None,
    };
    (start < end).then_some((start, end))
}

fn refused(status: &'static str, code: &str, message: &str) -> Answer {
    let body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    Answer {
        status,
        headers: vec![("content-type", "application/xml".to_owned())],
        body: body.into(),
    }
}
