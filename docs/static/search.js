// Changes of Sphinx's search, which exists only on the page of the results.
if (typeof Search !== "undefined") {
  // Sphinx ignores terms that are numbers; users search for 261 and 262.
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const parsed = parse(query);
    for (const term of splitQuery(query.trim())) {
      if (/^\d+$/.test(term)) {
        parsed[1].add(term);
        parsed[3].add(term);
      }
    }
    return parsed;
  };

  // Pages whose title contains a word of the query come first.
  const query = new URLSearchParams(window.location.search).get("q") || "";
  const words = new Set(splitQuery(query.toLowerCase()));
  Scorer.score = ([, title, , , score]) => {
    const page = splitQuery(title.split(" > ")[0].toLowerCase());
    return score + (page.some((word) => words.has(word)) ? 10 : 0);
  };
}
