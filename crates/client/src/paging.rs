//! Paged lists as one stream.

use futures::stream::{self, Stream, TryStreamExt};

use crate::Result;

/// The rows of all pages. `page` is called with the cursor (None at first) and returns some rows and the next
/// cursor, if any. A page is requested when the previous one is used up.
pub(crate) fn pages<T, C, F, Fut>(page: F) -> impl Stream<Item = Result<T>>
where
    C: Clone,
    F: Fn(Option<C>) -> Fut,
    Fut: Future<Output = Result<(Vec<T>, Option<C>)>>,
{
    let pages = stream::try_unfold(Some(None), move |cursor: Option<Option<C>>| {
        let asked = cursor.map(&page);
        async {
            let Some(asked) = asked else { return Ok(None) };
            let (rows, next) = asked.await?;
            Ok(Some((stream::iter(rows.into_iter().map(Ok)), next.map(Some))))
        }
    });
    pages.try_flatten()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn every_row_of_every_page_comes_once() {
        let rows = pages(|after: Option<u32>| async move {
            let first = after.map_or(0, |after| after + 1);
            Ok(((first..first + 2).collect(), (first < 4).then_some(first + 1)))
        });

        let all: Vec<u32> = rows.try_collect().now_or_never().unwrap().unwrap();

        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }
}
