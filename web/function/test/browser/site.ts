import { pageSite } from "tinyweb-shell/testing/site";

export default pageSite(new URL("../..", import.meta.url));
