//! Lists a bucket page by page, many folders at a time.
//!
//! A page contains the start of the next one, so that pages of one folder come one after another.
//! Folders are listed concurrently: as long as there are few, a page lists one level and names the
//! folders below; as soon as there are enough, a page lists everything below a folder, which takes
//! fewer requests.
//!
//! Tools leave objects of no bytes that end in `/` where a folder was made. The client removes that
//! slash, so each object without a byte is queried by its name: a marker does not exist under it.

use std::{collections::BTreeMap, sync::Arc};

use tierfeed_object_stores::{
    Client, mtime_ns,
    object_store::{
        self, ObjectMeta, ObjectStore, ObjectStoreExt as _, Result,
        list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore},
    },
};
use tokio::task::JoinSet;

use super::{REQUESTS_MAX, is_not_found};
use crate::source::{
    Selection,
    arranged::{Filled, Found},
    listing::entry,
    names::parted,
};

pub(super) struct Crawl<'a> {
    store: Arc<dyn ObjectStore>,
    pages: Arc<dyn PaginatedListStore>,
    selection: &'a dyn Selection,
    /// The prefix of all keys; empty, or ends in a slash.
    base: String,
    waiting: Vec<Part>,
    directories: BTreeMap<Vec<u8>, Found>,
    /// Objects without a byte, which may be markers.
    empty: BTreeMap<Vec<u8>, ObjectMeta>,
    /// The directory that was checked last, and whether it is entered.
    last: (Vec<u8>, bool),
    objects: u64,
    has_keys: bool,
}

#[derive(Debug, Clone)]
struct Part {
    prefix: String,
    depth: Option<Depth>,
    token: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Level,
    All,
}

type Answer = (Part, Result<PaginatedListResult>);

impl<'a> Crawl<'a> {
    pub(super) fn new(
        client: &Client,
        pages: Arc<dyn PaginatedListStore>,
        selection: &'a dyn Selection,
    ) -> Self {
        let prefix = client.prefix();
        let base = if prefix.is_root() { String::new() } else { format!("{prefix}/") };
        Self {
            store: Arc::clone(client.store()),
            pages,
            selection,
            waiting: vec![Part { prefix: base.clone(), depth: None, token: None }],
            base,
            directories: BTreeMap::from([(Vec::new(), Found::default())]),
            empty: BTreeMap::new(),
            last: (Vec::new(), true),
            objects: 0,
            has_keys: false,
        }
    }

    /// Returns `None` if there is nothing below the prefix, which then may be the name of an
    /// object.
    pub(super) async fn run(
        mut self,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<Vec<Filled>>> {
        let mut requests: JoinSet<Answer> = JoinSet::new();
        loop {
            while requests.len() < REQUESTS_MAX
                && let Some(part) = self.waiting.pop()
            {
                let in_sight = requests.len() + self.waiting.len();
                requests.spawn(part.with_depth(in_sight).ask(Arc::clone(&self.pages)));
            }
            let Some(answer) = requests.join_next().await else { break };
            let (part, page) = answer.map_err(lost)?;
            match page {
                Ok(page) => self.take(part, page),
                Err(error) => return Err(first_error(part, error, requests).await),
            }
            progress(self.objects);
        }
        self.look_at_empty().await?;
        progress(self.objects);
        if !self.has_keys && !self.base.is_empty() {
            return Ok(None);
        }
        let filled = |(name, found): (Vec<u8>, Found)| Filled {
            name,
            mtime_ns: None,
            found: found.arranged(),
        };
        Ok(Some(self.directories.into_iter().map(filled).collect()))
    }

    fn take(&mut self, part: Part, page: PaginatedListResult) {
        for folder in page.result.common_prefixes {
            self.has_keys = true;
            let key = format!("{folder}/");
            let path = key.strip_prefix(&self.base).map(|it| it.trim_end_matches('/'));
            // A key that begins with a slash makes a folder without a name, which is the source
            // again.
            if path.is_some_and(|path| !path.is_empty() && self.enters(path.as_bytes())) {
                self.waiting.push(Part { prefix: key, depth: None, token: None });
            }
        }
        for object in page.result.objects {
            self.has_keys = true;
            self.take_object(object);
        }
        if let Some(token) = page.page_token.filter(|token| !token.is_empty()) {
            self.waiting.push(Part { token: Some(token), ..part });
        }
    }

    fn take_object(&mut self, object: ObjectMeta) {
        let key = object.location.as_ref();
        // The marker of the source itself has lost its slash, and so does not begin with it.
        let Some(path) = key.strip_prefix(&self.base) else { return };
        let path = path.as_bytes();
        let (directory, name) = parted(path);
        if !self.enters(directory) {
            return;
        }
        if object.size == 0 {
            // If both exist, the object comes before the marker.
            self.empty.entry(path.to_vec()).or_insert(object);
        } else if self.selection.takes(path) {
            let entry = entry(name, object.e_tag.as_deref());
            self.push(directory, &entry, &object);
        }
    }

    fn push(&mut self, directory: &[u8], entry: &[u8], object: &ObjectMeta) {
        let found =
            self.directories.get_mut(directory).expect("what is not entered has no objects");
        found.push(entry, object.size, mtime_ns(object));
        self.objects += 1;
    }

    /// Whether all directories of the path are entered; they are then part of the listing.
    fn enters(&mut self, directory: &[u8]) -> bool {
        if self.last.0 != directory {
            let is_entered = self.directories.contains_key(directory)
                || self.enters(parted(directory).0) && self.selection.enters(directory);
            if is_entered {
                self.directories.entry(directory.to_vec()).or_default();
            }
            self.last = (directory.to_vec(), is_entered);
        }
        self.last.1
    }

    /// Keeps invariant 1 of the parent module.
    async fn look_at_empty(&mut self) -> Result<()> {
        let mut candidates = std::mem::take(&mut self.empty).into_iter();
        let mut requests = JoinSet::new();
        loop {
            while requests.len() < REQUESTS_MAX
                && let Some((path, object)) = candidates.next()
            {
                let store = Arc::clone(&self.store);
                requests.spawn(async move {
                    let asked = store.head(&object.location).await;
                    (path, object, asked)
                });
            }
            let Some(answer) = requests.join_next().await else { return Ok(()) };
            let (path, object, asked) = answer.map_err(lost)?;
            let (directory, name) = parted(&path);
            match asked {
                Ok(meta) if meta.size == 0 && self.selection.takes(&path) => {
                    let entry = entry(name, object.e_tag.as_deref());
                    self.push(directory, &entry, &object);
                }
                // One with bytes has been listed beside the marker.
                Ok(_) => (),
                Err(error) if is_not_found(&error) => {
                    self.enters(&path);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Part {
    /// A page after the first continues with the depth of the first.
    fn with_depth(self, in_sight: usize) -> Self {
        let depth = if in_sight + 1 >= REQUESTS_MAX { Depth::All } else { Depth::Level };
        Self { depth: self.depth.or(Some(depth)), ..self }
    }

    async fn ask(self, pages: Arc<dyn PaginatedListStore>) -> Answer {
        let options = PaginatedListOptions {
            delimiter: (self.depth == Some(Depth::Level)).then_some("/".into()),
            page_token: self.token.clone(),
            ..PaginatedListOptions::default()
        };
        let prefix = Some(self.prefix.as_str()).filter(|prefix| !prefix.is_empty());
        let page = pages.list_paginated(prefix, options).await;
        (self, page)
    }
}

/// Of all errors of the requests in flight, the one that comes first in the listing.
async fn first_error(
    part: Part,
    error: object_store::Error,
    mut requests: JoinSet<Answer>,
) -> object_store::Error {
    let mut first = (part.prefix, error);
    while let Some(answer) = requests.join_next().await {
        if let Ok((part, Err(error))) = answer
            && part.prefix < first.0
        {
            first = (part.prefix, error);
        }
    }
    first.1
}

fn lost(source: tokio::task::JoinError) -> object_store::Error {
    object_store::Error::JoinError { source }
}
