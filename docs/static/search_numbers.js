// Sphinx's search ignores terms that are numbers; users search for 261 and 262.
if (typeof Search !== "undefined") {
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
}
