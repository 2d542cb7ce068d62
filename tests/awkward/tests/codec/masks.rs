//! Field masks of generated messages, with the rules of protobuf's `FieldMaskUtil`.

use awkward::{
    editions::vectors::editions as vectors,
    masks::{Author, Book, Genre, book, paths},
};
use frpc::{
    Code, Status,
    codec::json,
    field_mask::{self, MergeOptions, PathSet, check, intersection, merge, normalized, project, union},
    prost_types::{FieldMask, Timestamp},
};

fn mask(paths: &str) -> FieldMask {
    let paths = paths.split(',').filter(|path| !path.is_empty());
    FieldMask { paths: paths.map(str::to_owned).collect() }
}

fn author(name: &str) -> Author {
    Author { name: name.to_owned(), born_in: "Paris".to_owned(), teacher: None }
}

fn book() -> Book {
    Book {
        title: "Emma".to_owned(),
        pages: Some(0),
        tags: vec!["old".to_owned()],
        authors_by_role: [("text".to_owned(), author("Jane"))].into(),
        author: Some(author("Jane")),
        sequel: Some(Box::new(Book { title: "Emma II".to_owned(), author: Some(author("Ann")), ..Book::default() })),
        printed: Some(Timestamp { seconds: 7, nanos: 8 }),
        format: Some(book::Format::File(book::File { url: "a".to_owned(), hash: vec![1] })),
        genre: Genre::Novel.into(),
        others: vec![author("Ann")],
        ..Book::default()
    }
}

fn projected(paths: &str) -> Book {
    let mut book = book();
    project(&mut book, &mask(paths)).expect("the mask fits");
    book
}

fn merged(into: Book, from: Book, paths: &str, options: MergeOptions) -> Book {
    let mut into = into;
    merge(&mut into, from, &mask(paths), options).expect("the mask fits");
    into
}

const REPLACE: MergeOptions = MergeOptions { replace_messages: true, replace_repeated: true };

#[test]
fn constants_are_the_paths_of_the_fields() {
    let all = PathSet::new()
        .with(paths::book::TITLE)
        .with(paths::book::AUTHORS_BY_ROLE)
        .with(paths::book::SEQUEL.then(paths::book::AUTHOR).then(paths::author::BORN_IN))
        .with(paths::book::FILE.then(paths::book::file::URL))
        .into_mask();
    assert_eq!(all.paths, ["title", "authors_by_role", "sequel.author.born_in", "file.url"]);
    check::<Book>(&all).unwrap();
    let text = json::to_string(&all).unwrap();
    assert_eq!(text, r#""title,authorsByRole,sequel.author.bornIn,file.url""#);
    assert_eq!(json::from_str::<FieldMask>(&text).unwrap(), all);
}

#[test]
fn paths_must_lead_through_single_messages() {
    let refused = |path: &str| check::<Book>(&mask(path)).unwrap_err().to_string();
    let text = |path: &str, reason: &str| format!("the path `{path}` does not fit masks.Book: {reason}");
    for (path, reason) in [
        ("titel", "masks.Book has no field `titel`"),
        ("author.nam", "masks.Author has no field `nam`"),
        ("sequel.sequel.file.size", "masks.Book.File has no field `size`"),
        ("format", "masks.Book has no field `format`"),
        ("authorsByRole", "masks.Book has no field `authorsByRole`"),
        ("author.", "masks.Author has no field ``"),
        (".author", "masks.Book has no field ``"),
        ("title.length", "`title` of masks.Book is no single message with fields"),
        ("others.name", "`others` of masks.Book is no single message with fields"),
        ("sequel.authors_by_role.text", "`authors_by_role` of masks.Book is no single message with fields"),
        ("printed.seconds", "`printed` of masks.Book is no single message with fields"),
    ] {
        assert_eq!(refused(path), text(path, reason));
    }
    assert!(check::<Book>(&FieldMask { paths: vec![String::new()] }).is_err());
    let deep = vec!["sequel"; 100].join(".");
    check::<Book>(&mask(&deep)).unwrap();
    let deeper = refused(&format!("{deep}.title"));
    assert!(deeper.ends_with("it has more than 100 parts"), "{deeper}");
    assert!(refused(&"x\n".repeat(1_000_000)).len() < 1000);
    let status = Status::from(check::<Book>(&mask("a")).unwrap_err());
    assert_eq!(status.code(), Code::InvalidArgument);
    // Neither operation changes a message with such a mask.
    let mut own = book();
    assert!(project(&mut own, &mask("title,nothing")).is_err());
    assert!(merge(&mut own, Book::default(), &mask("title,nothing"), REPLACE).is_err());
    assert_eq!(own, book());
}

#[test]
fn a_projection_keeps_only_the_masked_fields() {
    assert_eq!(projected(""), Book::default());
    assert_eq!(projected("title"), Book { title: "Emma".to_owned(), ..Book::default() });
    assert_eq!(projected("pages").pages, Some(0));
    assert_eq!(projected("genre,others"), Book { genre: 1, others: vec![author("Ann")], ..Book::default() });
    let name = Author { name: "Jane".to_owned(), ..Author::default() };
    assert_eq!(projected("author.name").author, Some(name));
    assert_eq!(projected("author,author.name").author, Some(author("Jane")));
    assert_eq!(projected("author.teacher").author, Some(Author::default()));
    assert_eq!(projected("sequel.title").sequel.unwrap().author, None);
    let file = |url: &str, hash: &[u8]| Some(book::Format::File(book::File { url: url.to_owned(), hash: hash.into() }));
    assert_eq!(projected("file").format, file("a", &[1]));
    assert_eq!(projected("file.hash").format, file("", &[1]));
    assert_eq!(projected("shelf").format, None);
}

#[test]
fn an_update_sets_the_masked_fields() {
    let from = || Book { title: "Persuasion".to_owned(), tags: vec!["new".to_owned()], ..Book::default() };
    let done = merged(book(), from(), "title,pages,genre", MergeOptions::default());
    assert_eq!(done, Book { title: "Persuasion".to_owned(), pages: None, genre: 0, ..book() });
    assert_eq!(merged(book(), from(), "", MergeOptions::default()), book());
    assert_eq!(merged(book(), from(), "tags", MergeOptions::default()).tags, ["old", "new"]);
    assert_eq!(merged(book(), from(), "tags", REPLACE).tags, ["new"]);
    let roles = Book { authors_by_role: [("art".to_owned(), author("Kate"))].into(), ..Book::default() };
    let mut names: Vec<_> =
        merged(book(), roles.clone(), "authors_by_role", MergeOptions::default()).authors_by_role.into_keys().collect();
    names.sort();
    assert_eq!(names, ["art", "text"]);
    assert_eq!(merged(book(), roles.clone(), "authors_by_role", REPLACE).authors_by_role, roles.authors_by_role);
    assert_eq!(merged(book(), from(), "printed", MergeOptions::default()).printed, None);
}

#[test]
fn messages_are_merged_or_replaced() {
    let from = || Book { author: Some(Author { name: "Kate".to_owned(), ..Author::default() }), ..Book::default() };
    assert_eq!(merged(book(), from(), "author", MergeOptions::default()).author, Some(author("Kate")));
    assert_eq!(merged(book(), from(), "author", REPLACE).author, from().author);
    assert_eq!(merged(book(), from(), "author.name", REPLACE).author, Some(author("Kate")));
    assert_eq!(merged(book(), from(), "author.born_in", REPLACE).author.unwrap().born_in, "");
    assert_eq!(merged(book(), Book::default(), "author", MergeOptions::default()).author, book().author);
    assert_eq!(merged(book(), Book::default(), "author", REPLACE).author, None);
    let cleared = Author { name: String::new(), ..author("Jane") };
    assert_eq!(merged(book(), Book::default(), "author.name", MergeOptions::default()).author, Some(cleared));
    assert_eq!(merged(Book::default(), Book::default(), "author.name", REPLACE), Book::default());
    assert_eq!(merged(Book::default(), from(), "author.born_in", REPLACE).author, Some(Author::default()));
    assert_eq!(merged(Book::default(), from(), "author.name", REPLACE).author, from().author);
}

#[test]
fn oneofs_follow_their_members() {
    let shelf = || Book { format: Some(book::Format::Shelf("A1".to_owned())), ..Book::default() };
    let file = |url: &str| Book {
        format: Some(book::Format::File(book::File { url: url.to_owned(), ..book::File::default() })),
        ..Book::default()
    };
    let plain = MergeOptions::default();
    assert_eq!(merged(book(), shelf(), "shelf", plain).format, shelf().format);
    assert_eq!(merged(book(), shelf(), "file.url", plain).format, merged(book(), file(""), "file.url", plain).format);
    assert_eq!(merged(book(), shelf(), "reader", plain).format, book().format);
    assert_eq!(merged(book(), shelf(), "file", plain).format, book().format);
    assert_eq!(merged(book(), shelf(), "file", REPLACE).format, None);
    assert_eq!(merged(shelf(), Book::default(), "shelf", plain).format, None);
    assert_eq!(merged(shelf(), file("b"), "file.url", plain).format, file("b").format);
    assert_eq!(merged(shelf(), file("b"), "file.hash", plain).format, file("").format);
    let both = book::Format::File(book::File { url: "b".to_owned(), hash: vec![1] });
    assert_eq!(merged(book(), file("b"), "file", plain).format, Some(both));
    assert_eq!(merged(book(), file("b"), "file", REPLACE).format, file("b").format);
    // The other message has a member outside the mask.
    assert_eq!(merged(shelf(), file("b"), "shelf", plain).format, None);
}

#[test]
fn messages_of_proto2_and_editions_have_masks() {
    // ANCHOR: masks
    let mut order = vectors::Order { count: Some(1), customer: "Ada".to_owned(), ..vectors::Order::default() };
    let mask = PathSet::new().with(vectors::paths::order::COUNT).into_mask();
    project(&mut order, &mask).unwrap();
    assert_eq!(order, vectors::Order { count: Some(1), ..vectors::Order::default() });
    merge(&mut order, vectors::Order::default(), &mask, REPLACE).unwrap();
    assert_eq!(order.count(), 7);
    // ANCHOR_END: masks
}

#[test]
fn sets_of_paths_are_normalized() {
    let text = |mask: FieldMask| mask.paths.join(",");
    assert_eq!(text(normalized(&mask("b.c,a_b,a,b,a.b,b.c,a.b.c"))), "a,a_b,b");
    assert_eq!(text(union(&mask("b.c,a.b"), &mask("a,b.d"))), "a,b.c,b.d");
    assert_eq!(text(intersection(&mask("a,b.c,d"), &mask("a.x,b,e"))), "a.x,b.c");
    assert_eq!(text(intersection(&mask("a.b"), &mask("a_b,ab"))), "");
    assert_eq!(text(field_mask::normalized(&mask(""))), "");
}
